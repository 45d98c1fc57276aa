// SPDX-License-Identifier: MIT
// Never built: a kernel whose array cannot stay in registers, which the build must refuse.
__global__ void local_memory(int* out, const int* at) {
    int values[64];
    for (int i = 0; i < 64; ++i) values[i] = out[i];
    for (int i = 0; i < 64; ++i) values[at[i]] += i;
    for (int i = 0; i < 64; ++i) out[i] = values[i];
}
