package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/tranche-dev/tranche/test/testenv"
)

// A sample is one line of a metrics page.
type sample struct {
	labels map[string]string
	value  float64
}

// parseSamples returns the samples of one metric from a page in Prometheus' text format.
func parseSamples(page io.Reader, metric string) ([]sample, error) {
	var samples []sample
	lines := bufio.NewScanner(page)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), metric+"{")
		if !ok {
			continue
		}
		s := sample{labels: map[string]string{}}
		for !strings.HasPrefix(rest, "}") {
			name, after, _ := strings.Cut(strings.TrimPrefix(rest, ","), "=")
			quoted, err := strconv.QuotedPrefix(after)
			if err != nil {
				return nil, fmt.Errorf("parse metric %s: label %s: %w", metric, name, err)
			}
			if s.labels[name], err = strconv.Unquote(quoted); err != nil {
				return nil, fmt.Errorf("parse metric %s: label %s: %w", metric, name, err)
			}
			rest = after[len(quoted):]
		}
		var err error
		if s.value, err = strconv.ParseFloat(strings.TrimSpace(rest[1:]), 64); err != nil {
			return nil, fmt.Errorf("parse metric %s: %w", metric, err)
		}
		samples = append(samples, s)
	}
	return samples, lines.Err()
}

// counts are numbers of requests by method, resource, or verb and resource.
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
	body, err := testenv.ReadMetrics(ctx, url)
	if err != nil {
		return nil, err
	}
	samples, err := parseSamples(strings.NewReader(body), "rest_client_requests_total")
	if err != nil {
		return nil, err
	}
	c := counts{}
	for _, s := range samples {
		c[s.labels["method"]] += s.value
	}
	return c, nil
}

// byResource adds counts by verb and resource up to counts by resource.
func (c counts) byResource() counts {
	sums := counts{}
	for key, n := range c {
		_, resource, _ := strings.Cut(key, " ")
		sums[resource] += n
	}
	return sums
}

// stored asks the API server how many bytes etcd has for its objects.
func stored(ctx context.Context, client rest.Interface) (int64, error) {
	page, err := client.Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return 0, fmt.Errorf("read metrics of the API server: %w", err)
	}
	defer page.Close() //nolint:errcheck // it was only read
	samples, err := parseSamples(page, "apiserver_storage_size_bytes")
	if err != nil || len(samples) == 0 {
		return 0, errors.Join(errors.New("the API server does not say how much is stored"), err)
	}
	return int64(samples[0].value), nil
}

// received asks the API server how many writes it has received, by verb and resource, of the kinds that a manager writes to here.
func received(ctx context.Context, client rest.Interface) (counts, error) {
	page, err := client.Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("read metrics of the API server: %w", err)
	}
	defer page.Close() //nolint:errcheck // it was only read
	samples, err := parseSamples(page, "apiserver_request_total")
	if err != nil {
		return nil, err
	}
	c := counts{}
	for _, s := range samples {
		verb := s.labels["verb"]
		switch verb {
		case "POST", "PUT", "PATCH", "APPLY", "DELETE":
		default:
			continue
		}
		resource := s.labels["resource"]
		if s.labels["group"] != "kueue.x-k8s.io" && resource != "events" {
			continue
		}
		if sub := s.labels["subresource"]; sub != "" {
			resource += "/" + sub
		}
		c[verb+" "+resource] += s.value
	}
	return c, nil
}
