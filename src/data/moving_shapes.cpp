// SPDX-License-Identifier: MIT
// Floor 3. See data/moving_shapes.h.
#include "data/moving_shapes.h"

#include <algorithm>
#include <cmath>

namespace vt {

double shape_distance(size_t shape, double x, double y) {
    const double ax = std::fabs(x), ay = std::fabs(y), root = std::sqrt(0.5);
    const auto box = [](double px, double py, double hx, double hy) {
        const double qx = px - hx, qy = py - hy;
        return std::hypot(std::max(qx, 0.0), std::max(qy, 0.0)) + std::min(std::max(qx, qy), 0.0);
    };
    switch (shape) {
        case 0:
            return std::hypot(x, y) - 0.9;
        case 1:
            return box(ax, ay, 0.75, 0.75);
        case 2:  // point up: below the two flanks, above the base
            return std::max(ax * std::cos(M_PI / 6) - y * 0.5 - 0.5, y - 0.5);
        case 3:
            return (ax + ay - 1.0) * root;
        case 4:
            return std::fabs(std::hypot(x, y) - 0.7) - 0.22;
        case 5:
            return std::min(box(ax, ay, 0.9, 0.3), box(ax, ay, 0.3, 0.9));
        default: {  // five points: distance to the edge between a tip and the notch beside it
            const double r = std::hypot(x, y), sector = 2 * M_PI / 5;
            double angle =
                std::fmod(std::atan2(x, -y) + 2 * M_PI + sector / 2, sector) - sector / 2;
            angle = std::fabs(angle);
            const double px = r * std::sin(angle), py = r * std::cos(angle);
            const double nx = 0.42 * std::sin(sector / 2), ny = 0.42 * std::cos(sector / 2);
            // line from the tip (0, 1) to the notch (nx, ny); outward normal to the right
            const double ex = nx, ey = ny - 1, len = std::hypot(ex, ey);
            return (px * -ey + (py - 1) * ex) / len;
        }
    }
}

}  // namespace vt
