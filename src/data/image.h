// SPDX-License-Identifier: MIT
// Pictures for people: a canvas with anti-aliased strokes and text, contact sheets of clips, and
// line plots. PNG out; nothing but the standard library.
// Floor 3.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/codec.h"
#include "data/video.h"

namespace vt {

using Rgb = std::array<uint8_t, 3>;

// (H,W,3) u8. Coordinates are in pixels, (0,0) the upper left corner of the upper left pixel; what
// lies outside is clipped.
class Canvas {
  public:
    struct Point {
        double x = 0, y = 0;
    };
    Canvas(int64_t height, int64_t width, Rgb background);
    [[nodiscard]] int64_t H() const { return H_; }
    [[nodiscard]] int64_t W() const { return W_; }
    [[nodiscard]] const uint8_t* rgb() const { return rgb_.data(); }

    void fill(double x0, double y0, double x1, double y1, Rgb color);
    /// A connected stroke of the given width with round joints; drawn once, so that an `opacity`
    /// below 1 does not darken where it crosses itself.
    void stroke(const std::vector<Point>& points, double width, Rgb color, double opacity = 1);
    /// Like fill, but copies an (h,w,3) picture, each of its pixels `zoom` pixels wide.
    void blit(const uint8_t* rgb, int64_t h, int64_t w, int64_t x, int64_t y, int64_t zoom);

    /// Text whose capitals are `size` pixels high, its upper left corner at (x, y). ASCII; other
    /// characters show as '?'.
    void text(double x, double y, std::string_view s, double size, Rgb color);
    /// The same turned a quarter to the left (reads upwards), (x, y) its lower left corner.
    void text_up(double x, double y, std::string_view s, double size, Rgb color);
    [[nodiscard]] static double text_width(std::string_view s, double size);

  private:
    struct Segment {
        Point a, b;
    };
    void draw(const std::vector<Segment>& segments, double width, Rgb color, double opacity);
    void glyphs(double x, double y, std::string_view s, double size, Rgb color, bool up);
    int64_t H_, W_;
    std::vector<uint8_t> rgb_;
    std::vector<float> cover_;  // of the stroke being drawn
};

/// PNG file bytes of an (H,W,3) picture.
[[nodiscard]] std::string encode_png(const uint8_t* rgb, int64_t H, int64_t W);

struct SheetRow {
    std::string caption;
    const Clip* clip = nullptr;
};
/// One row per sample: its caption, and up to `columns` of its frames evenly spread over time, the
/// first and last among them, with their times (or numbers where the fps is not known) below.
void write_contact_sheet(const fs::path& path, const std::vector<SheetRow>& rows,
                         int64_t columns = 8);

struct Series {
    std::string name;
    std::vector<double> x, y;  // of equal length; points that are not finite break the line
};
// Where the names of the series stand: inside the upper right corner, where falling curves leave
// room, or in rows between the title and the plot.
enum class Legend : uint8_t { kInside, kAbove };
struct PlotOptions {
    bool log_y = false;  // points that are not positive are left out
    int64_t width = 1200, height = 750;
    Legend legend = Legend::kInside;
};
void write_plot(const fs::path& path, std::string_view title, std::string_view xlabel,
                std::string_view ylabel, const std::vector<Series>& series,
                const PlotOptions& options = {});

}  // namespace vt
