package bench_test

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// size is the last number in the name of a benchmark that says how large it is.
var size = regexp.MustCompile(`^(.*(?:pending|queues|holders|running)=)(\d+)(.*)$`)

// A sample is how long a benchmark of some size takes.
type sample struct {
	size float64
	took time.Duration
}

// printGrowth fits the exponent with which time grows with size to the benchmarks whose names differ in nothing else.
func printGrowth() {
	families := map[string][]sample{}
	for name, took := range measured {
		if parts := size.FindStringSubmatch(name); parts != nil {
			n, err := strconv.ParseFloat(parts[2], 64)
			if err == nil && n > 0 && took > 0 {
				family := parts[1] + "N" + parts[3]
				families[family] = append(families[family], sample{n, took})
			}
		}
	}
	var lines []string
	for family, samples := range families {
		if len(samples) > 1 {
			lines = append(lines, fmt.Sprintf("growth %-60s time ~ N^%.2f", family, exponent(samples)))
		}
	}
	slices.Sort(lines)
	for _, line := range lines {
		_, _ = fmt.Fprintln(os.Stdout, line)
	}
}

// exponent is the slope of the straight line through the logarithms, by least squares.
func exponent(samples []sample) float64 {
	var n, sx, sy, sxx, sxy float64
	for _, s := range samples {
		x, y := math.Log(s.size), math.Log(float64(s.took))
		n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	return (n*sxy - sx*sy) / (n*sxx - sx*sx)
}
