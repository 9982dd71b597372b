package main

import (
	"bytes"
	"context"
	"fmt"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"

	"github.com/tranche-dev/tranche/test/testenv"
)

// addSamples calls a function with the labels and the value of each sample of a counter or gauge on a page of metrics.
func addSamples(page []byte, metric string, add func(labels map[string]string, value float64)) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		return fmt.Errorf("parse metric %s: %w", metric, err)
	}
	for _, sample := range families[metric].GetMetric() {
		labels := map[string]string{}
		for _, label := range sample.GetLabel() {
			labels[label.GetName()] = label.GetValue()
		}
		add(labels, sample.GetCounter().GetValue()+sample.GetGauge().GetValue())
	}
	return nil
}

// addServerSamples does the same with the metrics of the API server.
func addServerSamples(ctx context.Context, client rest.Interface, metric string, add func(map[string]string, float64)) error {
	page, err := client.Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("read metrics of the API server: %w", err)
	}
	return addSamples(page, metric, add)
}

// counts are numbers of requests by what has been requested.
type counts map[string]float64

// since returns by how much counts have grown.
func (c counts) since(before counts) counts {
	grown := counts{}
	for key, n := range c {
		if n -= before[key]; n > 0 {
			grown[key] = n
		}
	}
	return grown
}

func (c counts) total() float64 {
	sum := 0.0
	for _, n := range c {
		sum += n
	}
	return sum
}

// sent asks the manager how many requests it has sent, by method. It counts the answers, so a request that was tried twice counts
// twice, and the requests of all its clients: caches, reconcilers, writers and the recorder of Events.
func sent(ctx context.Context, url string) (counts, error) {
	page, err := testenv.ReadMetrics(ctx, url)
	if err != nil {
		return nil, err
	}
	c := counts{}
	err = addSamples([]byte(page), "rest_client_requests_total", func(labels map[string]string, value float64) { c[labels["method"]] += value })
	return c, err
}

// stored asks the API server how many bytes etcd has for its objects.
func stored(ctx context.Context, client rest.Interface) (int64, error) {
	size := 0.0
	err := addServerSamples(ctx, client, "apiserver_storage_size_bytes", func(_ map[string]string, value float64) { size += value })
	return int64(size), err
}

// received asks the API server how many writes it has received, by verb and resource, of the kinds that a manager writes to here.
func received(ctx context.Context, client rest.Interface) (counts, error) {
	c := counts{}
	return c, addServerSamples(ctx, client, "apiserver_request_total", func(labels map[string]string, value float64) {
		switch labels["verb"] {
		case "POST", "PUT", "PATCH", "APPLY", "DELETE":
		default:
			return
		}
		resource := labels["resource"]
		if labels["group"] != "kueue.x-k8s.io" && resource != "events" {
			return
		}
		if sub := labels["subresource"]; sub != "" {
			resource += "/" + sub
		}
		c[labels["verb"]+" "+resource] += value
	})
}
