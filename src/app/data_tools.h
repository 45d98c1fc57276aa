// SPDX-License-Identifier: MIT
// The parts of `vtrain data` that make data sets and show them.
// Floor 7.
#pragma once

#include "app/commands.h"

namespace vt {

void add_data_encode(CLI::App& data, Work& work);     // vtrain data encode: videos to shards
void add_data_import(CLI::App& data, Work& work);     // vtrain data import: arrays to shards
void add_data_repack(CLI::App& data, Work& work);     // vtrain data repack: HDF5 to shards
void add_data_stats(CLI::App& data, Work& work);      // vtrain data stats: what is in shards
void add_data_synth(CLI::App& data, Work& work);      // vtrain data synth: moving shapes to shards
void add_data_timesteps(CLI::App& data, Work& work);  // vtrain data timesteps: noise levels drawn
void add_data_view(CLI::App& data, Work& work);       // vtrain data view: shards to pictures
void add_data_score(CLI::App& data, Work& work);

}  // namespace vt
