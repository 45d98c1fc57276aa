// SPDX-License-Identifier: MIT
#include "train/tensorboard.h"

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <fcntl.h>

#include "core/check.h"

namespace vt {

namespace {

// Field numbers of tensorflow/core/util/event.proto and framework/summary.proto.
enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_varint(std::string* out, uint64_t v) {
    while (v >= 0x80) {
        *out += static_cast<char>((v & 0x7f) | 0x80);
        v >>= 7;
    }
    *out += static_cast<char>(v);
}
void put_tag(std::string* out, uint32_t field, Wire wire) {
    put_varint(out, field << 3 | wire);
}
template <typename T>
void put_little(std::string* out, T v) {
    for (size_t i = 0; i < sizeof v; ++i) *out += static_cast<char>(v >> (8 * i) & 0xff);
}
void put_bytes(std::string* out, uint32_t field, std::string_view bytes) {
    put_tag(out, field, kBytes);
    put_varint(out, bytes.size());
    *out += bytes;
}

std::string event_of(int64_t step) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    std::string out;
    put_tag(&out, 1, kFixed64);  // wall_time
    put_little(&out, std::bit_cast<uint64_t>(std::chrono::duration<double>(now).count()));
    put_tag(&out, 2, kVarint);  // step
    put_varint(&out, static_cast<uint64_t>(step));
    return out;
}

uint32_t masked_crc(std::string_view bytes) {
    return std::rotr(crc32c(bytes), 15) + 0xa282ead8U;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
    static constexpr std::array<uint32_t, 256> kTable = [] {
        std::array<uint32_t, 256> t{};
        for (uint32_t i = 0; i < 256; ++i) {
            uint32_t c = i;
            for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) != 0 ? 0x82f63b78U : 0U);
            t[i] = c;
        }
        return t;
    }();
    uint32_t c = ~0U;
    for (const char b : bytes) c = kTable[(c ^ static_cast<unsigned char>(b)) & 0xff] ^ (c >> 8);
    return ~c;
}

EventsFile::EventsFile(const fs::path& folder, int64_t resumed_step) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) {
        raise(Fault::kSystem,
              fmt::format("cannot create the folder {}: {}", folder.string(), error.message()));
    }
    // TensorBoard reads the files of a folder in the order of their names
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(
        std::chrono::system_clock::now().time_since_epoch());
    for (int k = 0; !fd_.open(); ++k) {
        path_ = folder / fmt::format("events.out.tfevents.{:010}.{:03}", seconds.count(), k);
        fd_ = Fd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
        if (!fd_.open() && errno != EEXIST) raise_errno("create", path_);
    }
    std::string version = event_of(0);
    put_bytes(&version, 3, "brain.Event:2");  // file_version
    write(version);
    if (resumed_step > 0) {
        std::string start = event_of(resumed_step + 1);
        put_bytes(&start, 7, std::string("\x08\x01", 2));  // session_log { status: START }
        write(start);
    }
}

void EventsFile::append(const MetricRow& row) {
    std::string summary;
    for (const auto& [name, value] : metric_values(row)) {
        std::string scalar;
        // names that are paths already are tags as they stand
        const bool path = name.find('/') != std::string::npos;
        put_bytes(&scalar, 1, path ? name : (row.eval ? "eval/" : "train/") + name);  // tag
        put_tag(&scalar, 2, kFixed32);  // simple_value
        put_little(&scalar, std::bit_cast<uint32_t>(static_cast<float>(value)));
        put_bytes(&summary, 1, scalar);
    }
    if (summary.empty()) return;
    std::string event = event_of(row.step);
    put_bytes(&event, 5, summary);
    write(event);
}

void EventsFile::append_image(const std::string& tag, int64_t step, std::string_view encoded,
                              int64_t height, int64_t width) {
    std::string image;
    put_tag(&image, 1, kVarint);  // height
    put_varint(&image, static_cast<uint64_t>(height));
    put_tag(&image, 2, kVarint);  // width
    put_varint(&image, static_cast<uint64_t>(width));
    put_tag(&image, 3, kVarint);  // colorspace: RGB
    put_varint(&image, 3);
    put_bytes(&image, 4, encoded);  // encoded_image_string
    std::string value;
    put_bytes(&value, 1, tag);
    put_bytes(&value, 4, image);
    std::string summary;
    put_bytes(&summary, 1, value);
    std::string event = event_of(step);
    put_bytes(&event, 5, summary);
    write(event);
}

void EventsFile::write(const std::string& event) {
    std::string record, length;
    put_little(&length, static_cast<uint64_t>(event.size()));
    record += length;
    put_little(&record, masked_crc(length));
    record += event;
    put_little(&record, masked_crc(event));
    write_all(fd_, record.data(), narrow<int64_t>(record.size()), path_);
}

}  // namespace vt
