// SPDX-License-Identifier: MIT
// Contact sheets and line plots.
// Floor 3.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "data/image.h"

namespace vt {
namespace {

constexpr Rgb kPaper{255, 255, 255}, kInk{38, 42, 48}, kFaint{110, 116, 124}, kGrid{230, 232, 235},
    kFrame{160, 165, 172};
// Okabe and Ito's colours for the colour-blind, the yellow left out (pale on white).
constexpr std::array<Rgb, 7> kColors{{{0, 114, 178},
                                      {213, 94, 0},
                                      {0, 158, 115},
                                      {204, 121, 167},
                                      {230, 159, 0},
                                      {86, 180, 233},
                                      {60, 60, 60}}};

// Cuts to `width` pixels, with dots where something is missing.
std::string fitted(const std::string& s, double size, double width) {
    if (Canvas::text_width(s, size) <= width) return s;
    std::string cut = s;
    while (!cut.empty() && Canvas::text_width(cut + "..", size) > width) cut.pop_back();
    return cut + "..";
}

struct Axis {
    double lo = 0, hi = 1;   // in plot units (log10 of the values where log)
    std::vector<double> at;  // ticks, same units
    std::vector<std::string> label;
};

std::string number(double v, double step) {
    if (v == 0) return "0";
    if (std::fabs(v) >= 1e6 || std::fabs(v) < 1e-4) return fmt::format("{:.3g}", v);
    const int digits = std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
    return fmt::format("{:.{}f}", v, digits);
}

// Round steps of 1, 2 or 5 times a power of ten, about `count` of them.
Axis linear_axis(double lo, double hi, int count, bool widen) {
    if (!(hi > lo)) {
        const double pad = lo == 0 ? 1 : std::fabs(lo) * 0.5;
        lo -= pad;
        hi += pad;
    }
    const double rough = (hi - lo) / count, p = std::pow(10.0, std::floor(std::log10(rough)));
    const double m = rough / p;
    const double step = p * (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10);
    Axis a{.lo = lo, .hi = hi, .at = {}, .label = {}};
    if (widen) {
        a.lo = std::floor(lo / step + 1e-9) * step;
        a.hi = std::ceil(hi / step - 1e-9) * step;
    }
    for (double k = std::ceil(a.lo / step - 1e-9); k * step <= a.hi + step * 1e-9; ++k) {
        a.at.push_back(k * step);
        a.label.push_back(number(k * step, step));
    }
    return a;
}

Axis log_axis(double lo, double hi) {
    if (!(hi > lo)) {
        lo *= 0.5;
        hi *= 2;
    }
    const double room = 0.04 * (std::log10(hi) - std::log10(lo));
    Axis a{.lo = std::log10(lo) - room, .hi = std::log10(hi) + room, .at = {}, .label = {}};
    const double decades = a.hi - a.lo;
    std::vector<int> digits{1};
    if (decades < 3) digits = {1, 2, 5};
    if (decades < 0.8) digits = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    if (decades < 0.25) {  // too narrow for digits: the ticks of a linear axis
        Axis b = linear_axis(std::pow(10.0, a.lo), std::pow(10.0, a.hi), 6, false);
        for (double& v : b.at) v = std::log10(v);
        b.lo = a.lo;
        b.hi = a.hi;
        return b;
    }
    const int every = std::max(1, static_cast<int>(decades / 8));
    for (int e = static_cast<int>(std::floor(a.lo)); e <= static_cast<int>(std::ceil(a.hi)); ++e) {
        if (e % every != 0) continue;
        for (const int d : digits) {
            const double v = d * std::pow(10.0, e);
            if (std::log10(v) < a.lo || std::log10(v) > a.hi) continue;
            a.at.push_back(std::log10(v));
            a.label.push_back(fmt::format("{:g}", v));
        }
    }
    return a;
}

constexpr double kTick = 11;  // capitals of tick labels and legends
constexpr double kLegendRow = kTick + 11;
constexpr double kHidden = -1e6;  // a place outside every canvas

void draw_entry(Canvas& canvas, const std::string& name, Rgb color, double x, double y) {
    const double mid = y + kTick / 2;
    canvas.stroke({{x, mid}, {x + 26, mid}}, 3, color);
    canvas.text(x + 38, y, name, kTick, kInk);
}

// In the upper right corner of the plot.
void draw_legend_box(Canvas& canvas, const std::vector<Series>& series, double right, double top) {
    double name_w = 0, rows = 0;
    for (const Series& s : series) {
        if (s.name.empty()) continue;
        name_w = std::max(name_w, Canvas::text_width(s.name, kTick));
        ++rows;
    }
    if (rows == 0) return;
    const double box_w = name_w + 66, box_h = rows * kLegendRow + 15;
    const double bx = right - box_w - 14, by = top + 14;
    canvas.fill(bx - 1, by - 1, bx + box_w + 1, by + box_h + 1, kGrid);
    canvas.fill(bx, by, bx + box_w, by + box_h, kPaper);
    double y = by + 13;
    for (size_t k = 0; k < series.size(); ++k) {
        if (series[k].name.empty()) continue;
        draw_entry(canvas, series[k].name, kColors.at(k % kColors.size()), bx + 14, y);
        y += kLegendRow;
    }
}

// Side by side from `left` on, in as many rows as needed; returns their height.
double draw_legend_row(Canvas& canvas, const std::vector<Series>& series, double left, double right,
                       double y) {
    constexpr double kGap = 28;
    double x = left, rows = 0;
    for (size_t k = 0; k < series.size(); ++k) {
        if (series[k].name.empty()) continue;
        const double width = 38 + Canvas::text_width(series[k].name, kTick);
        if (rows == 0) rows = 1;
        if (x > left && x + width > right) {
            x = left;
            ++rows;
        }
        draw_entry(canvas, series[k].name, kColors.at(k % kColors.size()), x,
                   y + (rows - 1) * kLegendRow);
        x += width + kGap;
    }
    return rows * kLegendRow;
}

}  // namespace

void write_contact_sheet(const fs::path& path, const std::vector<SheetRow>& rows, int64_t columns) {
    VT_CHECK(!rows.empty() && columns >= 1, "{} rows, {} columns", rows.size(), columns);
    constexpr double kText = 11, kSmall = 8;
    constexpr int64_t kMargin = 16, kGap = 4, kCaption = 24, kTimes = 16, kRowGap = 10;
    int64_t cell_w = 0, height = kMargin, widest = 0;
    for (const SheetRow& r : rows) {
        VT_CHECK(r.clip != nullptr && r.clip->T >= 1, "a contact sheet row without frames");
        cell_w = std::max(cell_w, r.clip->W);
        widest = std::max(widest, std::min(columns, r.clip->T));
    }
    // small clips are shown enlarged, pixel by pixel
    const int64_t zoom = std::max(int64_t{1}, 128 / cell_w);
    for (const SheetRow& r : rows) height += kCaption + r.clip->H * zoom + kTimes + kRowGap;
    const int64_t width =
        std::max(int64_t{320}, 2 * kMargin + widest * (cell_w * zoom + kGap) - kGap);
    Canvas canvas(height + kMargin - kRowGap, width, kPaper);
    int64_t y = kMargin;
    for (const SheetRow& r : rows) {
        const Clip& clip = *r.clip;
        canvas.text(static_cast<double>(kMargin), static_cast<double>(y + 4),
                    fitted(r.caption, kText, static_cast<double>(width - 2 * kMargin)), kText,
                    kInk);
        y += kCaption;
        const int64_t shown = std::min(columns, clip.T);
        for (int64_t i = 0; i < shown; ++i) {
            const int64_t t = shown == 1 ? 0 : (i * (clip.T - 1) + (shown - 1) / 2) / (shown - 1);
            const int64_t x = kMargin + i * (cell_w * zoom + kGap);
            canvas.blit(clip.rgb.data() + t * clip.H * clip.W * 3, clip.H, clip.W, x, y, zoom);
            const std::string label =
                clip.fps > 0 ? fmt::format("{:.2f} s", static_cast<double>(t) / clip.fps)
                             : fmt::format("frame {}", t);
            canvas.text(static_cast<double>(x), static_cast<double>(y + clip.H * zoom + 5), label,
                        kSmall, kFaint);
        }
        y += clip.H * zoom + kTimes + kRowGap;
    }
    write_png(path, canvas.rgb(), canvas.H(), canvas.W());
}

void write_plot(const fs::path& path, std::string_view title, std::string_view xlabel,
                std::string_view ylabel, const std::vector<Series>& series,
                const PlotOptions& options) {
    constexpr double kTitle = 17, kLabel = 12.5;
    constexpr double kInf = std::numeric_limits<double>::infinity();
    double x0 = kInf, x1 = -kInf, y0 = kInf, y1 = -kInf;
    const auto usable = [&](double x, double y) {
        return std::isfinite(x) && std::isfinite(y) && (!options.log_y || y > 0);
    };
    for (const Series& s : series) {
        VT_CHECK(s.x.size() == s.y.size(), "series {}: {} x, {} y", s.name, s.x.size(), s.y.size());
        for (size_t i = 0; i < s.x.size(); ++i) {
            if (!usable(s.x[i], s.y[i])) continue;
            x0 = std::min(x0, s.x[i]);
            x1 = std::max(x1, s.x[i]);
            y0 = std::min(y0, s.y[i]);
            y1 = std::max(y1, s.y[i]);
        }
    }
    const bool empty = !(x0 <= x1);
    if (empty) {
        x0 = y0 = options.log_y ? 1 : 0;
        x1 = y1 = options.log_y ? 10 : 1;
    }
    const Axis ax = linear_axis(x0, x1, 8, false);
    const Axis ay = options.log_y ? log_axis(y0, y1) : linear_axis(y0, y1, 6, true);

    double widest = 0;
    for (const std::string& l : ay.label) widest = std::max(widest, Canvas::text_width(l, kTick));
    Canvas canvas(options.height, options.width, kPaper);
    const auto W = static_cast<double>(options.width), H = static_cast<double>(options.height);
    const double left = 24 + kLabel + 18 + widest + 12, right = W - 36;
    const double above = options.legend == Legend::kAbove
                             ? draw_legend_row(canvas, series, left, right, kHidden)
                             : 0;
    const double top = 24 + kTitle + 26 + above, bottom = H - (24 + kLabel + 18 + kTick + 12);
    const auto px = [&](double x) { return left + (x - ax.lo) / (ax.hi - ax.lo) * (right - left); };
    const auto py = [&](double y) {
        return bottom - (y - ay.lo) / (ay.hi - ay.lo) * (bottom - top);
    };
    const auto centred = [](double at, std::string_view s, double size) {
        return at - Canvas::text_width(s, size) / 2;
    };

    for (size_t i = 0; i < ay.at.size(); ++i) {
        const double y = std::round(py(ay.at[i]));
        canvas.fill(left, y, right, y + 1, kGrid);
        canvas.text(left - 12 - Canvas::text_width(ay.label[i], kTick), y + 0.5 - kTick / 2,
                    ay.label[i], kTick, kFaint);
    }
    for (size_t i = 0; i < ax.at.size(); ++i) {
        const double x = std::round(px(ax.at[i]));
        canvas.fill(x, top, x + 1, bottom, kGrid);
        canvas.fill(x, bottom, x + 1, bottom + 6, kFrame);
        canvas.text(centred(x + 0.5, ax.label[i], kTick), bottom + 14, ax.label[i], kTick, kFaint);
    }
    canvas.fill(left, bottom, right, bottom + 1.5, kFrame);
    canvas.fill(left - 1.5, top, left, bottom + 1.5, kFrame);
    // a long title is set smaller, a very long one is cut too
    const double title_size = std::clamp(
        kTitle * (right - left) / std::max(1.0, Canvas::text_width(title, kTitle)), 10.0, kTitle);
    canvas.text(left, 24, fitted(std::string(title), title_size, right - left), title_size, kInk);
    canvas.text(centred((left + right) / 2, xlabel, kLabel), H - 24 - kLabel, xlabel, kLabel, kInk);
    canvas.text_up(24, (top + bottom) / 2 + Canvas::text_width(ylabel, kLabel) / 2, ylabel, kLabel,
                   kInk);
    if (empty) {
        constexpr std::string_view kNone = "no data";
        canvas.text(centred((left + right) / 2, kNone, kLabel), (top + bottom) / 2, kNone, kLabel,
                    kFaint);
    }

    for (size_t k = 0; k < series.size(); ++k) {
        const Series& s = series[k];
        const Rgb color = kColors.at(k % kColors.size());
        std::vector<Canvas::Point> line;
        const auto flush = [&] {
            if (line.size() == 1) {
                canvas.stroke(line, 6, color);
            } else {
                canvas.stroke(line, 2.4, color);
            }
            line.clear();
        };
        for (size_t i = 0; i < s.x.size(); ++i) {
            if (!usable(s.x[i], s.y[i])) {
                flush();
                continue;
            }
            line.push_back({px(s.x[i]), py(options.log_y ? std::log10(s.y[i]) : s.y[i])});
        }
        flush();
    }

    if (options.legend == Legend::kAbove) {
        draw_legend_row(canvas, series, left, right, 24 + kTitle + 16);
    } else {
        draw_legend_box(canvas, series, right, top);
    }
    write_png(path, canvas.rgb(), canvas.H(), canvas.W());
}

}  // namespace vt
