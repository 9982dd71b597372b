package plot_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"testing"

	"github.com/tranche-dev/tranche/test/bench/e2e/plot"
)

// sample is a small chart: 8 of 12 are held first and half of them in use, then 2 in a second panel that ends earlier.
func sample() *plot.Chart {
	return &plot.Chart{
		Title: "Held & used", X: "time in s", Y: "GPUs", Inner: "in use", Outer: "held <idle>", Limit: 12, LimitName: "quota",
		Panels: []plot.Panel{
			{Title: "first", Note: "50% idle", Steps: []plot.Step{{X: 1, Whole: 8, Used: 4}, {X: 21.26, Whole: 12, Used: 12}, {X: 42}}, End: 42},
			{Title: "second", Note: "never idle", Steps: []plot.Step{{X: 2, Whole: 2, Used: 2}}, End: 30},
		},
	}
}

// Whatever is drawn is well-formed, shows no number that is none, and refers to nothing outside.
func TestWellFormed(t *testing.T) {
	tests := map[string]*plot.Chart{
		"sample":       sample(),
		"nothing":      {},
		"empty panels": {Title: "empty", Panels: make([]plot.Panel, 3)},
		"one instant":  {Panels: []plot.Panel{{Steps: []plot.Step{{}}}}},
		"above limit":  {Limit: 1, Panels: []plot.Panel{{Steps: []plot.Step{{Whole: 5, Used: 7}}, End: 1}}},
		"out of range": {Panels: []plot.Panel{{Steps: []plot.Step{{X: 5, Whole: 1}}, End: 1}}},
		"markup":       {Title: `</title><script>"&`, X: "<", Y: "&", Inner: "]]>", Outer: `"`, Limit: 1, LimitName: "<&", Panels: []plot.Panel{{Title: "<b>", Note: "<i>&"}}},
	}
	for name, chart := range tests {
		t.Run(name, func(t *testing.T) {
			svg := plot.SVG(chart)
			for _, banned := range []string{"NaN", "Inf", "<script", "href", "url("} {
				if bytes.Contains(svg, []byte(banned)) {
					t.Errorf("contains %s", banned)
				}
			}
			decoder := xml.NewDecoder(bytes.NewReader(svg))
			for {
				if _, err := decoder.Token(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatalf("%v in\n%s", err, svg)
				}
			}
			if again := plot.SVG(chart); !bytes.Equal(svg, again) {
				t.Error("is drawn in another way the second time")
			}
		})
	}
}
