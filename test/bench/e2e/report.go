package main

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/test/bench/e2e/ledger"
	"github.com/tranche-dev/tranche/test/bench/e2e/shape"
)

// A figure is one line of the report.
type figure struct {
	name  string
	value float64
	unit  string
	note  string
}

func seconds(name string, d time.Duration) figure {
	return figure{name: name, value: d.Seconds(), unit: "s"}
}

func millis(name string, d time.Duration) figure {
	return figure{name: name, value: float64(d) / float64(time.Millisecond), unit: "ms"}
}

// ratio returns a figure as a multiple of another one.
func ratio(name string, value, base float64, note string) figure {
	return figure{name: name, value: value / base, unit: "x", note: note}
}

func count(name string, n int, note string) figure {
	return figure{name: name, value: float64(n), unit: "n", note: note}
}

// problems counts errors, and names some of them.
func problems(errs []error) figure {
	f := count("problems", len(errs), "")
	for _, err := range errs[:min(len(errs), 5)] {
		f.note += err.Error() + "; "
	}
	return f
}

func mebibytes(name string, bytes int64) figure {
	return figure{name: name, value: float64(bytes) / (1 << 20), unit: "MiB"}
}

// figuresOf computes all reported figures of a run.
func figuresOf(s *shape.Shape, found *results) []figure {
	figures := append(bounding(s, found), service(s, found)...)
	figures = append(figures, requests(found)...)
	return append(figures, costs(found)...)
}

// bounding reports how long the run took, and its lower bounds.
func bounding(s *shape.Shape, found *results) []figure {
	var life, cpu, all time.Duration
	var notes []string
	for _, f := range found.floors {
		life += f.wall / time.Duration(len(found.floors))
		cpu += f.apiserver / time.Duration(len(found.floors))
		all += f.all / time.Duration(len(found.floors))
		notes = append(notes, f.wall.Round(10*time.Microsecond).String())
	}
	machine := time.Duration(s.Lives()) * life
	bound := max(s.QuotaBound(), s.ArrivalBound(), machine)
	perLife := millis("life/wall", life)
	perLife.note = "measured without a manager: " + strings.Join(notes, " before, ") + " after"
	return []figure{
		seconds("wall", found.wall),
		seconds("bound", bound),
		ratio("ratio", float64(found.wall), float64(bound), "wall by bound"),
		seconds("bound/quota", s.QuotaBound()), seconds("bound/arrival", s.ArrivalBound()), seconds("bound/machine", machine),
		perLife, millis("life/apiserver-cpu", cpu), millis("life/cpu", all),
		ratio(
			"ratio/cpu", float64(found.after.since(&found.before)), float64(all*time.Duration(s.Lives())),
			"processor time of all in the run, by that of as many lives without a manager",
		),
	}
}

// service reports the admissions and waiting times of the quota Workloads.
func service(s *shape.Shape, found *results) []figure {
	d := found.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	var figures []figure
	for class := range s.Classes {
		latencies := d.books.Latencies(class)
		var sum time.Duration
		for _, l := range latencies {
			sum += l
		}
		name := "admission/" + s.Classes[class].Name
		figures = append(figures,
			millis(name+"/p50", ledger.Quantile(latencies, 0.5)), millis(name+"/p95", ledger.Quantile(latencies, 0.95)),
			millis(name+"/mean", sum/time.Duration(max(len(latencies), 1))), millis(name+"/max", ledger.Quantile(latencies, 1)),
		)
	}
	violations := d.books.Violations
	return append(
		figures,
		count("admissions", d.books.Admissions, ""), count("evictions", d.evictions, ""), count("evictions/cleared-by-driver", d.cleared, ""),
		count("finish-conflicts", d.conflicts, ""), count("unfinished", found.unfinished, ""),
		count("violations", len(violations), strings.Join(violations[:min(len(violations), 3)], "; ")), problems(d.problems),
	)
}

// requests reports the requests of the manager for each admission.
func requests(found *results) []figure {
	admissions := float64(max(found.driver.books.Admissions, 1))
	sent := found.after.sent.since(found.before.sent)
	figures := []figure{{
		name: "requests", value: sent.total() / admissions, unit: "n/admission", note: "sent by the manager, all kinds",
	}}
	for _, method := range slices.Sorted(maps.Keys(sent)) {
		figures = append(figures, figure{name: "requests/" + method, value: sent[method] / admissions, unit: "n/admission"})
	}
	return append(figures, writes(found)...)
}

// writes reports what the API server has received from others than the driver, for each admission.
func writes(found *results) []figure {
	admissions, received := float64(max(found.driver.books.Admissions, 1)), found.after.received.since(found.before.received)
	figures := []figure{{name: "writes", value: received.total() / admissions, unit: "n/admission"}}
	for _, request := range slices.Sorted(maps.Keys(received)) {
		figures = append(figures, figure{name: "writes/" + request, value: received[request] / admissions, unit: "n/admission"})
	}
	return figures
}

// costs reports the resources that the processes have used.
func costs(found *results) []figure {
	before, after := &found.before, &found.after
	found.driver.mu.Lock()
	late := slices.Sorted(slices.Values(found.driver.late))
	found.driver.mu.Unlock()
	return []figure{
		seconds("manager/cpu", after.manager.cpu-before.manager.cpu), mebibytes("manager/peak-rss", after.manager.peak),
		seconds("apiserver/cpu", after.apiserver.cpu-before.apiserver.cpu), mebibytes("apiserver/peak-rss", after.apiserver.peak),
		seconds("etcd/cpu", after.etcd.cpu-before.etcd.cpu), seconds("driver/cpu", after.driver.cpu-before.driver.cpu),
		millis("driver/lag/p99", ledger.Quantile(late, 0.99)), millis("driver/lag/max", ledger.Quantile(late, 1)),
		millis("status-settled", found.settled), others(before, after),
	}
}

// others reports the share of the machine that other processes used. A large share means much noise.
func others(before, after *reading) figure {
	spent := after.machine - before.machine - after.since(before)
	whole := after.at.Sub(before.at) * time.Duration(after.cores)
	return figure{name: "others/cpu", value: 100 * float64(spent) / float64(whole), unit: "%", note: "of the machine, taken by other work during the run"}
}

// A bound is the most that a figure may be.
type bound struct {
	Figure string `json:"figure"`
	// Shape is the name of the shape that the bound is for. Empty means all that have no bound of their own for the figure.
	Shape string  `json:"shape,omitempty"`
	Most  float64 `json:"most"`
}

type bounds []bound

func decodeBounds(data []byte) (bounds, error) {
	var file struct {
		Bounds bounds `json:"bounds"`
	}
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		return nil, fmt.Errorf("decode bounds: %w", err)
	}
	return file.Bounds, nil
}

// most is the bound of a figure.
func (b bounds) most(shape, name string) (most float64, ok bool) {
	for i := range b {
		if b[i].Figure != name || b[i].Shape != "" && b[i].Shape != shape {
			continue
		}
		if most, ok = b[i].Most, true; b[i].Shape != "" {
			break
		}
	}
	return most, ok
}

// exceeded names the figures that are larger than they may be.
func (b bounds) exceeded(shape string, figures []figure) []string {
	var breaches []string
	for _, f := range figures {
		if most, ok := b.most(shape, f.name); ok && f.value > most {
			breaches = append(breaches, fmt.Sprintf("%s: %s is %.4g %s, may be %.4g. %s", shape, f.name, f.value, f.unit, most, f.note))
		}
	}
	return breaches
}

// table renders figures for people.
func table(shape string, figures []figure, b bounds) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	line := func(cells ...string) { _, _ = w.Write([]byte(strings.Join(cells, "\t") + "\n")) }
	line(shape, "value", "unit", "at most", "")
	for _, f := range figures {
		bar := ""
		if most, ok := b.most(shape, f.name); ok {
			bar = fmt.Sprintf("%.4g", most)
		}
		line(f.name, fmt.Sprintf("%.4g", f.value), f.unit, bar, f.note)
	}
	_ = w.Flush() // a strings.Builder takes everything
	return out.String()
}

// benchstat renders figures so that benchstat can compare runs.
func benchstat(shape string, figures []figure) string {
	var out strings.Builder
	fmt.Fprintf(&out, "\ngoos: %s\ngoarch: %s\npkg: github.com/tranche-dev/tranche/test/bench/e2e\n", runtime.GOOS, runtime.GOARCH)
	for _, f := range figures {
		fmt.Fprintf(&out, "BenchmarkE2E/shape=%s/%s 1 %g %s\n", shape, f.name, f.value, f.unit)
	}
	return out.String()
}
