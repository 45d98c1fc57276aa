// SPDX-License-Identifier: MIT
// A whole training run in one process on data in memory, and a look at what it left.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/load.h"
#include "ckpt/run_dir.h"
#include "comm/comm.h"
#include "cpu/cpu.h"
#include "fault/signal.h"
#include "tests/model/fill.h"
#include "tests/paths.h"
#include "tests/train/fake_data.h"
#include "train/trainer.h"

namespace vt::test {

inline RunConfig tiny_config(const fs::path& out) {
    RunConfig c;
    c.run.out = out.string();
    c.run.seed = 5;
    c.run.train_iters = 4;
    c.model.preset = "tiny";
    c.model.num_attention_heads = 2;
    c.model.attention_head_dim = 12;
    c.model.ffn_dim = 40;
    c.model.num_layers = 2;
    c.data.global_batch_size = 4;
    c.data.micro_batch_size = 2;
    c.optim.lr = 1e-2;
    c.optim.lr_warmup_iters = 2;
    c.optim.lr_decay_style = "cosine";
    c.optim.lr_decay_iters = 100;
    c.optim.ema_decay = {0.9};
    c.log.log_interval = 1;
    c.log.eval_interval = 0;
    return c;
}

// Weights by the fill rule of the fixtures: never the initial ones, whose zero head hides
// everything.
inline void fill_store(ParamStore& store) {
    const std::vector<std::vector<double>> values = fill_weights(store.table());
    for (size_t i = 0; i < values.size(); ++i) {
        float* p = store.master()[i].as<float>();
        for (size_t j = 0; j < values[i].size(); ++j) p[j] = static_cast<float>(values[i][j]);
    }
}

struct RunOutcome {
    int code = -1;
    fs::path last;             // highest good checkpoint
    std::vector<double> loss;  // per logged step
    std::vector<double> norm;
};

inline RunOutcome train(const RunConfig& config, const Dataset& data, int threads = 2,
                        const Dataset* valid = nullptr, StepObserver* observer = nullptr,
                        const Ops* backend = nullptr) {
    Pool pool(threads);
    const auto world = self_group();
    const TrainerInput input{.config = config,
                             .config_text = "",
                             .mesh = "test",
                             .backend = backend != nullptr ? *backend : cpu_ops(),
                             .pool = pool,
                             .world = *world,
                             .train = data,
                             .valid = valid,
                             .check_resume = {},
                             .init_weights = fill_store};
    const SignalGuard signals;
    Trainer trainer(input);
    trainer.observe(observer);
    RunOutcome out;
    out.code = trainer.run();
    out.last = find_latest(config.run.out).value_or(fs::path());
    for (const MetricRow& row : read_metrics(fs::path(config.run.out) / "metrics.jsonl")) {
        if (row.eval) continue;
        out.loss.push_back(row.loss.value_or(-1));
        out.norm.push_back(row.grad_norm.value_or(-1));
    }
    return out;
}

// Every state tensor of a checkpoint, name -> bytes of f32.
inline std::vector<std::pair<std::string, std::vector<float>>> read_state(const fs::path& dir,
                                                                          const ParamTable& table,
                                                                          int emas) {
    std::vector<std::pair<std::string, std::vector<float>>> out;
    std::vector<std::string> kinds = {"model", "adam_m", "adam_v"};
    for (int k = 0; k < emas; ++k) kinds.push_back("ema" + std::to_string(k));
    std::vector<StateTensor> wanted;
    for (const std::string& kind : kinds) {
        for (const ParamRow& row : table) {
            out.emplace_back(kind + "/" + row.name,
                             std::vector<float>(static_cast<size_t>(row.shape.numel())));
        }
    }
    size_t at = 0;
    for (size_t k = 0; k < kinds.size(); ++k) {
        for (const ParamRow& row : table) {
            auto& [name, values] = out[at++];
            wanted.push_back({.name = name,
                              .global = row.shape,
                              .local = Tensor(values.data(), row.shape, DType::kF32),
                              .rect = {}});
        }
    }
    (void)load(dir, wanted);
    return out;
}

// Names of the tensors whose bits differ.
inline std::vector<std::string> differing(
    const std::vector<std::pair<std::string, std::vector<float>>>& a,
    const std::vector<std::pair<std::string, std::vector<float>>>& b) {
    std::vector<std::string> out;
    for (size_t i = 0; i < a.size(); ++i) {
        const size_t n = a[i].second.size();  // 0: a frozen row has no moments
        if (n != b[i].second.size() ||
            (n > 0 && std::memcmp(a[i].second.data(), b[i].second.data(), 4 * n) != 0)) {
            out.push_back(a[i].first);
        }
    }
    return out;
}

}  // namespace vt::test
