#include "loadtest/svg_chart.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "common/concat.h"
#include "loadtest/stats.h"

namespace weightless::loadtest {
namespace {

constexpr double kLeft = 56;
constexpr double kRight = 16;
constexpr double kTop = 34;
constexpr double kBottom = 42;
constexpr int kNumColors = 6;

// Round steps: 1, 2 or 5 times a power of ten.
double TickStep(double range, int num_ticks) {
  const double rough = range / num_ticks;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (rough <= factor * power) return factor * power;
  }
  return 10 * power;
}

std::string TickText(double value) {
  if (value >= 10000) return absl::StrFormat("%gk", value / 1000);
  return absl::StrFormat("%g", value);
}

// Maps values to pixels.
struct Scales {
  double x_low = 0, x_high = 1, y_high = 1;
  double width = 0, height = 0;

  double X(double x) const { return kLeft + (x - x_low) / (x_high - x_low) * Inner(); }
  double Y(double y) const { return height - kBottom - y / y_high * (height - kTop - kBottom); }
  double Inner() const { return width - kLeft - kRight; }
};

Scales FitScales(const Chart& chart) {
  Scales scales{.width = static_cast<double>(chart.width),
                .height = static_cast<double>(chart.height)};
  double x_low = 0;
  double x_high = 0;
  double y_high = 0;
  bool is_first = true;
  for (const Series& series : chart.series) {
    for (const auto& [x, y] : series.points) {
      x_low = is_first ? x : std::min(x_low, x);
      x_high = is_first ? x : std::max(x_high, x);
      y_high = std::max(y_high, y);
      is_first = false;
    }
  }
  // From 0 unless that would leave the left half empty.
  scales.x_low = x_low > x_high / 2 && x_high > x_low ? x_low : std::min(0.0, x_low);
  scales.x_high = x_high > scales.x_low ? x_high : scales.x_low + 1;
  scales.y_high = y_high > 0 ? 1.05 * y_high : 1;
  return scales;
}

std::string Axes(const Chart& chart, const Scales& s) {
  std::string out;
  const double y_step = TickStep(s.y_high, 4);
  for (double y = 0; y <= s.y_high; y += y_step) {
    out += absl::StrFormat(
        "<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>"
        "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
        kLeft, s.Y(y), s.width - kRight, s.Y(y), kLeft - 6, s.Y(y) + 4, TickText(y));
  }
  const double x_step = TickStep(s.x_high - s.x_low, 6);
  for (double x = std::ceil(s.x_low / x_step) * x_step; x <= s.x_high + x_step / 1e6; x += x_step) {
    out += absl::StrFormat(
        "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", s.X(x),
        s.height - kBottom + 16, TickText(std::abs(x) < x_step / 1e6 ? 0 : x));
  }
  out += absl::StrFormat(
      "<text class=\"title\" x=\"%.1f\" y=\"16\">%s</text>"
      "<text class=\"label\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>"
      "<text class=\"label\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
      4.0, HtmlEscape(chart.title), s.width - kRight, s.height - 8, HtmlEscape(chart.x_label), 4.0,
      s.height - 8, HtmlEscape(chart.y_label));
  return out;
}

std::string Line(const Series& series, const Scales& s, int color) {
  if (series.points.empty()) return "";
  std::string path;
  for (const auto& [x, y] : series.points) {
    path += absl::StrFormat("%s%.1f,%.1f", path.empty() ? "M" : "L", s.X(x), s.Y(y));
  }
  std::string out;
  if (series.is_filled) {
    out += absl::StrFormat("<path class=\"area c%d\" d=\"%sL%.1f,%.1fL%.1f,%.1fZ\"/>\n", color,
                           path, s.X(series.points.back().first), s.Y(0),
                           s.X(series.points.front().first), s.Y(0));
  }
  out += absl::StrFormat("<path class=\"line c%d\" d=\"%s\"/>\n", color, path);
  for (size_t i = 0; series.has_dots && i < series.points.size(); ++i) {
    const auto& [x, y] = series.points[i];
    out += absl::StrFormat(
        "<circle class=\"dot c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"><title>%s: %g, %g</title>"
        "</circle>\n",
        color, s.X(x), s.Y(y), HtmlEscape(series.name), x, y);
    if (i < series.point_labels.size()) {
      out += absl::StrFormat(
          "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", s.X(x) - 6,
          s.Y(y) - 3, HtmlEscape(series.point_labels[i]));
    }
  }
  return out;
}

std::string Legend(const Chart& chart, const Scales& s) {
  if (chart.series.size() < 2) return "";
  std::string out;
  double x = s.width - kRight;
  for (size_t i = chart.series.size(); i-- > 0;) {
    const std::string& name = chart.series[i].name;
    x -= 7.0 * static_cast<double>(name.size()) + 24;
    out += absl::StrFormat(
        "<rect class=\"swatch c%d\" x=\"%.1f\" y=\"8\" width=\"10\" height=\"10\"/>"
        "<text class=\"tick\" x=\"%.1f\" y=\"17\">%s</text>\n",
        static_cast<int>(i) % kNumColors, x, x + 14, HtmlEscape(name));
  }
  return out;
}

std::string Markers(const Chart& chart, const Scales& s) {
  std::string out;
  double y = kTop + 8;
  for (const Marker& marker : chart.markers) {
    if (marker.x < s.x_low || marker.x > s.x_high) continue;
    // A label near the right edge stands on the left of its line.
    const bool is_right = s.X(marker.x) > s.width - 90;
    out += absl::StrFormat(
        "<line class=\"marker\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>"
        "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s %.4g</text>\n",
        s.X(marker.x), kTop, s.X(marker.x), s.height - kBottom, s.X(marker.x) + (is_right ? -4 : 4),
        y, is_right ? "end" : "start", HtmlEscape(marker.name), marker.x);
    y += 13;
  }
  return out;
}

}  // namespace

std::string LineChart(const Chart& chart) {
  const Scales scales = FitScales(chart);
  std::string out = absl::StrFormat("<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n",
                                    chart.width, chart.height, HtmlEscape(chart.title));
  out += Axes(chart, scales);
  for (size_t i = 0; i < chart.series.size(); ++i) {
    out += Line(chart.series[i], scales, static_cast<int>(i) % kNumColors);
  }
  return out + Markers(chart, scales) + Legend(chart, scales) + "</svg>\n";
}

Series Histogram(std::vector<double> sample, size_t num_bins) {
  Series series{.is_filled = true};
  if (sample.empty()) return series;
  std::sort(sample.begin(), sample.end());
  const double low = sample.front();
  const double high = std::max(Percentile(sample, 99.5), low + 1e-9);
  const double width = (high - low) / static_cast<double>(num_bins);
  std::vector<size_t> counts(num_bins);
  for (const double value : sample) {
    ++counts[std::min(static_cast<size_t>((value - low) / width), num_bins - 1)];
  }
  for (size_t i = 0; i < num_bins; ++i) {
    const double left = low + width * static_cast<double>(i);
    const auto count = static_cast<double>(counts[i]);
    series.points.emplace_back(left, count);
    series.points.emplace_back(left + width, count);
  }
  return series;
}

std::string HtmlEscape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace weightless::loadtest
