// What the sets of metrics share: how a metric enters a registry, and bucket boundaries. Included
// by the .cc files of the sets only.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/labels.h>
#include <prometheus/registry.h>

#include <string>

#include "common/metrics.h"
#include "common/worker_facts.h"

namespace weightless {

using Buckets = prometheus::Histogram::BucketBoundaries;

const Buckets& TokenTimeBuckets();    // seconds, of tokens and steps
const Buckets& RequestTimeBuckets();  // seconds, of requests
const Buckets& BatchBuckets();        // sequences in a step
const Buckets& TokenCountBuckets();   // tokens of a step or of a request

// `alias`, when not null, is told everything the metric is told.
Counter MakeCounter(prometheus::Registry& registry, const char* name, const char* help,
                    const prometheus::Labels& labels = {}, prometheus::Counter* alias = nullptr);
Gauge MakeGauge(prometheus::Registry& registry, const char* name, const char* help,
                const prometheus::Labels& labels = {}, prometheus::Gauge* alias = nullptr);
Histogram MakeHistogram(prometheus::Registry& registry, const char* name, const char* help,
                        const Buckets& buckets, const prometheus::Labels& labels = {},
                        prometheus::Histogram* alias = nullptr);

// The labels by which variants are told apart and compared.
prometheus::Labels VariantLabels(const WorkerFacts& facts);

// weightless_build_info, and the process_* gauges that every Prometheus client exports.
void AddBuildInfo(prometheus::Registry& registry);
std::vector<prometheus::MetricFamily> CollectProcess();

}  // namespace weightless
