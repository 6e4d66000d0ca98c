// Small charts as SVG text, styled by the CSS of the page they stand in.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace weightless::loadtest {

struct Series {
  std::string name{};
  std::vector<std::pair<double, double>> points{};
  std::vector<std::string> point_labels{};  // empty, or one for each point, shown beside it
  bool is_filled = false;                   // the area under the line
  bool has_dots = false;
};

// A vertical line with a label, as for a percentile.
struct Marker {
  std::string name;
  double x = 0;
};

struct Chart {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<Series> series{};
  std::vector<Marker> markers{};
  int width = 520;
  int height = 240;
};

// Lines through the points, axes from 0 with round ticks, a legend for several series.
std::string LineChart(const Chart& chart);

// The counts of `sample` in bins of equal width between its least and its 99.5th percentile, with
// what lies above it in the last bin.
Series Histogram(std::vector<double> sample, size_t num_bins);

// Text fit for HTML and SVG.
std::string HtmlEscape(const std::string& text);

}  // namespace weightless::loadtest
