// SPDX-License-Identifier: MIT
#include "model/wan_params.h"

#include <cmath>

namespace vt {

namespace {

struct Preset {
    const char* name;
    WanConfig config;
};

const std::vector<Preset>& presets() {
    // 0 channels or text width: the data's.
    static const std::vector<Preset> kPresets = {
        {"tiny",
         {.num_attention_heads = 4,
          .attention_head_dim = 16,
          .in_channels = 0,
          .out_channels = 0,
          .text_dim = 0,
          .ffn_dim = 256,
          .num_layers = 4}},
        {"small",
         {.num_attention_heads = 4,
          .attention_head_dim = 64,
          .in_channels = 0,
          .out_channels = 0,
          .text_dim = 0,
          .ffn_dim = 1024,
          .num_layers = 6}},
        {"wan2.1-t2v-1.3b", {.num_attention_heads = 12, .ffn_dim = 8960, .num_layers = 30}},
        {"wan2.1-t2v-14b", {}},
        {"wan2.2-ti2v-5b",
         {.num_attention_heads = 24,
          .in_channels = 48,
          .out_channels = 48,
          .ffn_dim = 14336,
          .num_layers = 30}},
    };
    return kPresets;
}

}  // namespace

std::optional<WanConfig> wan_preset(std::string_view name) {
    for (const Preset& p : presets()) {
        if (p.name == name) return p.config;
    }
    return std::nullopt;
}

std::vector<std::string> wan_preset_names() {
    std::vector<std::string> names;
    for (const Preset& p : presets()) names.emplace_back(p.name);
    return names;
}

namespace wan {

namespace {

class TableBuilder {
  public:
    int64_t stage = -1;
    std::string prefix;

    ParamRow& add(const std::string& name, Shape shape, Init init, double scale = 0) {
        ParamRow row;
        row.name = prefix + name;
        row.shape = shape;
        row.init = init;
        row.init_scale = scale;
        row.stage = stage;
        table_.push_back(row);
        return table_.back();
    }
    // A linear layer: weight (out, in...) and bias (out). `cut` is how tensor parallelism divides
    // the weight; only a cut along the rows divides the bias.
    void linear(const std::string& name, Shape shape, Cut cut = Cut::kNone) {
        const int64_t out = shape[0], in = shape.numel() / out;
        const double bound = std::sqrt(6.0 / static_cast<double>(in + out));
        ParamRow& w = add(name + ".weight", shape, Init::kUniform, bound);
        w.decay = true;
        w.matmul = true;
        w.cut = cut;
        add(name + ".bias", {out}, Init::kZeros).cut = cut == Cut::kRows ? cut : Cut::kNone;
    }
    ParamRow& weight() { return table_[table_.size() - 2]; }  // of the linear added last
    ParamRow& bias() { return table_.back(); }
    // Computed in the statistics' dtype in every precision: no operand copy.
    void time_linear(const std::string& name, Shape shape) {
        linear(name, shape);
        weight().matmul = false;
    }
    void normal(double deviation) {
        weight().init = Init::kNormal;
        weight().init_scale = deviation;
    }
    void keep_f32() { weight().keep_f32 = bias().keep_f32 = true; }
    ParamTable take() { return std::move(table_); }

  private:
    ParamTable table_;
};

void add_attention(TableBuilder& t, const std::string& name, int64_t D) {
    for (const char* which : {".to_q", ".to_k", ".to_v"})
        t.linear(name + which, {D, D}, Cut::kRows);
    t.linear(name + ".to_out.0", {D, D}, Cut::kCols);
    t.add(name + ".norm_q.weight", {D}, Init::kOnes).cut = Cut::kRows;
    t.add(name + ".norm_k.weight", {D}, Init::kOnes).cut = Cut::kRows;
}

}  // namespace

ParamTable param_table(const WanConfig& c) {
    const int64_t D = c.D(), F = c.ffn_dim;
    const Patch p = c.patch_size;
    const double table_deviation = 1 / std::sqrt(static_cast<double>(D));
    TableBuilder t;

    t.stage = c.num_layers;
    t.add("scale_shift_table", {1, 2, D}, Init::kNormal, table_deviation).keep_f32 = true;

    t.stage = -1;
    t.linear("patch_embedding", {D, c.in_channels, p.t, p.h, p.w});
    t.bias().init = Init::kUniform;
    t.bias().init_scale = 1 / std::sqrt(static_cast<double>(c.in_channels * p.volume()));
    t.prefix = "condition_embedder.";
    t.time_linear("time_embedder.linear_1", {D, c.freq_dim});
    t.normal(0.02);
    t.keep_f32();
    t.time_linear("time_embedder.linear_2", {D, D});
    t.normal(0.02);
    t.keep_f32();
    t.time_linear("time_proj", {6 * D, D});
    t.linear("text_embedder.linear_1", {D, c.text_dim});
    t.normal(0.02);
    t.linear("text_embedder.linear_2", {D, D});
    t.normal(0.02);

    for (int64_t b = 0; b < c.num_layers; ++b) {
        t.stage = b;
        t.prefix = fmt::format("blocks.{}.", b);
        t.add("scale_shift_table", {1, 6, D}, Init::kNormal, table_deviation).keep_f32 = true;
        add_attention(t, "attn1", D);
        add_attention(t, "attn2", D);
        t.add("norm2.weight", {D}, Init::kOnes).keep_f32 = true;
        t.add("norm2.bias", {D}, Init::kZeros).keep_f32 = true;
        t.linear("ffn.net.0.proj", {F, D}, Cut::kRows);
        t.linear("ffn.net.2", {D, F}, Cut::kCols);
    }

    t.stage = c.num_layers;
    t.prefix = "";
    t.linear("proj_out", {c.out_channels * p.volume(), D});
    t.weight().init = Init::kZeros;
    t.weight().init_scale = 0;
    return t.take();
}

void check_config(const WanConfig& c) {
    // Upper bounds keep every product of two sizes inside 64 bits, whatever a file says.
    constexpr int64_t kMost = 1 << 20;
    const auto within = [](const char* key, int64_t value, int64_t most) {
        if (value < 1 || value > most) {
            raise(Fault::kUser, fmt::format("model.{} = {} must be from 1 to {}", key, value, most),
                  value == 0 ? "this preset takes it from the data; set it to use the model alone"
                             : "");
        }
    };
    within("patch_size[0]", c.patch_size.t, 64);
    within("patch_size[1]", c.patch_size.h, 64);
    within("patch_size[2]", c.patch_size.w, 64);
    within("num_attention_heads", c.num_attention_heads, 4096);
    within("in_channels", c.in_channels, kMost);
    within("out_channels", c.out_channels, kMost);
    within("text_dim", c.text_dim, kMost);
    within("freq_dim", c.freq_dim, kMost);
    within("ffn_dim", c.ffn_dim, kMost);
    within("num_layers", c.num_layers, 4096);
    within("rope_max_seq_len", c.rope_max_seq_len, kMost);
    if (c.attention_head_dim < 6 || c.attention_head_dim > 256 || c.attention_head_dim % 2 != 0) {
        raise(Fault::kUser,
              fmt::format("model.attention_head_dim = {} must be even, from 6 to 256: the rotation "
                          "turns pairs of channels on each of three axes",
                          c.attention_head_dim),
              "64 and 128 are the fast widths");
    }
    if (c.freq_dim % 2 != 0) {
        raise(Fault::kUser, fmt::format("model.freq_dim = {} must be even: half "
                                        "cosines, half sines",
                                        c.freq_dim));
    }
    if (!(c.eps > 0)) raise(Fault::kUser, fmt::format("model.eps = {} must be positive", c.eps));
}

void check_batch(const WanConfig& c, const BatchShape& shape) {
    const LatentShape& l = shape.latent;
    const Patch& p = c.patch_size;
    if (shape.n < 1 || shape.St < 1) {
        raise(Fault::kUser, fmt::format("a batch of {} samples with {} text rows each: both must "
                                        "be at least 1",
                                        shape.n, shape.St));
    }
    if (l.C != c.in_channels) {
        raise(Fault::kUser, fmt::format("model.in_channels = {}, but the latents have {} channels",
                                        c.in_channels, l.C));
    }
    const auto axis = [&](const char* name, int64_t size, int64_t patch, int index) {
        if (size < 1 || size % patch != 0) {
            raise(Fault::kUser,
                  fmt::format("model.patch_size[{}] = {} does not divide the latent's {} = {}",
                              index, patch, name, size),
                  "encode at a size that is a multiple of the patch");
        }
        if (size / patch > c.rope_max_seq_len) {
            raise(Fault::kUser, fmt::format("{} positions along {} exceed the model's "
                                            "rope_max_seq_len = {}",
                                            size / patch, name, c.rope_max_seq_len));
        }
    };
    axis("T", l.T, p.t, 0);
    axis("H", l.H, p.h, 1);
    axis("W", l.W, p.w, 2);
}

double sample_flop(const WanConfig& c, const BatchShape& one) {
    const auto L = double(token_count(c, one.latent)), St = double(one.St), D = double(c.D());
    const auto F = double(c.ffn_dim), volume = double(c.patch_size.volume());
    const double block =
        L * (12 * D * D + 4 * D * F) + 4 * L * L * D + 4 * L * St * D + 4 * St * D * D;
    const double ends = 2 * L * D * volume * double(c.in_channels + c.out_channels);
    const double text = St * (2 * double(c.text_dim) * D + 2 * D * D);
    const double time = 2 * double(c.freq_dim) * D + 14 * D * D;
    return double(c.num_layers) * block + ends + text + time;
}

}  // namespace wan

}  // namespace vt
