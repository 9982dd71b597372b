// Package plot draws panels below each other on common axes, each with an amount over time and the part of it that is in use, as an
// SVG that needs nothing but itself. The same chart always gives the same bytes.
package plot

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A Chart is everything that is drawn.
type Chart struct {
	Title string
	// X and Y name the axes, with their units.
	X, Y string
	// Inner and Outer are what the legend calls the part that is in use, and the rest of the amount.
	Inner, Outer string
	// Limit is drawn as a line across each panel under the name LimitName, if it is not 0.
	Limit     float64
	LimitName string
	Panels    []Panel
}

// A Panel is one amount over time.
type Panel struct {
	// Title is above the panel on the left, Note on the right.
	Title, Note string
	// Steps are in the order of time. The last one lasts until End.
	Steps []Step
	// End is marked by a line.
	End float64
}

// A Step is the whole amount and the part of it that is in use from a time on.
type Step struct{ X, Whole, Used float64 }

// Measures of the drawing.
const (
	width, left, right    = 860.0, 64.0, 20.0
	head, foot            = 70.0, 24.0
	panelTop, panelHeight = 30.0, 190.0
	inset                 = 6.0
	ticksAcross, ticksUp  = 10, 5
)

// Colors are given twice, for light and for dark surroundings; the background is drawn, so that either can be read on any page.
const style = `
text{font:13px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#1f2328}
.title{font-size:17px;font-weight:600}.panel{font-weight:600}.back{fill:#ffffff}.grid{stroke:#d1d9e0}.axis{stroke:#59636e}
.outer{fill:#f0a04b}.inner{fill:#2463a8}.limit{stroke:#b42318;stroke-dasharray:6 4}.end{stroke:#1f2328;stroke-dasharray:2 3}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.back{fill:#0d1117}.grid{stroke:#30363d}.axis{stroke:#9198a1}
.outer{fill:#c6711c}.inner{fill:#6cb0ff}.limit{stroke:#ff8b80}.end{stroke:#e6edf3}}
`

// A drawing is an SVG in the making.
type drawing struct {
	out        bytes.Buffer
	chart      *Chart
	maxX, maxY float64
	across, up float64 // from one tick to the next
}

// SVG draws a chart.
func SVG(c *Chart) []byte {
	d := &drawing{chart: c, maxY: c.Limit}
	for i := range c.Panels {
		p := &c.Panels[i]
		d.maxX = max(d.maxX, p.End)
		for _, step := range p.Steps {
			d.maxX = max(d.maxX, step.X)
			d.maxY = max(d.maxY, step.Whole, step.Used)
		}
	}
	d.across, d.up = tick(d.maxX, ticksAcross), tick(d.maxY, ticksUp)
	d.maxX, d.maxY = math.Max(d.maxX, d.across), math.Ceil(math.Max(d.maxY, d.up)/d.up)*d.up
	height := head + float64(len(c.Panels))*(panelTop+panelHeight) + foot
	d.line(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" role="img">`, number(width), number(height))
	d.line(`<title>%s</title>`, escaped(c.Title))
	d.line(`<style>%s</style>`, style)
	d.line(`<rect class="back" width="%s" height="%s"/>`, number(width), number(height))
	d.text(left, 30, "title", c.Title)
	d.legend(58)
	for i := range c.Panels {
		d.panel(&c.Panels[i], head+float64(i)*(panelTop+panelHeight)+panelTop)
	}
	d.foot(height - foot)
	d.line(`<text transform="rotate(-90)" x="%s" y="18" text-anchor="middle">%s</text>`, number(-(head+height-foot)/2), escaped(c.Y))
	d.line(`</svg>`)
	return d.out.Bytes()
}

// legend names the colors in one row.
func (d *drawing) legend(y float64) {
	const box, letter, gap = 12.0, 7.0, 26.0
	x := left
	for _, entry := range []struct{ class, name string }{{"inner", d.chart.Inner}, {"outer", d.chart.Outer}} {
		d.line(`<rect class="%s" x="%s" y="%s" width="%s" height="%s"/>`, entry.class, number(x), number(y-box+1), number(box), number(box))
		d.text(x+box+inset, y, "", entry.name)
		x += box + inset + letter*float64(len([]rune(entry.name))) + gap
	}
	if d.chart.Limit > 0 {
		d.stroke("limit", x, y-5, x+2*box, y-5)
		d.text(x+2*box+inset, y, "", d.chart.LimitName)
	}
}

// panel draws one amount with its axes; top is the upper end of its vertical axis.
func (d *drawing) panel(p *Panel, top float64) {
	bottom := top + panelHeight - panelTop
	y := func(value float64) float64 { return bottom - value/d.maxY*(bottom-top) }
	d.text(left, top-8, "panel", p.Title)
	d.line(`<text x="%s" y="%s" text-anchor="end">%s</text>`, number(width-right), number(top-8), escaped(p.Note))
	for value := 0.0; value <= d.maxY+d.up/2; value += d.up {
		d.stroke("grid", left, y(value), width-right, y(value))
		d.line(`<text x="%s" y="%s" text-anchor="end">%s</text>`, number(left-inset), number(y(value)+4), number(value))
	}
	d.area("outer", p, y, func(s Step) float64 { return s.Whole })
	d.area("inner", p, y, func(s Step) float64 { return s.Used })
	if d.chart.Limit > 0 {
		d.stroke("limit", left, y(d.chart.Limit), width-right, y(d.chart.Limit))
	}
	d.stroke("end", d.x(p.End), top, d.x(p.End), bottom)
	d.stroke("axis", left, bottom, width-right, bottom)
	d.stroke("axis", left, top, left, bottom)
	for value := 0.0; value <= d.maxX; value += d.across {
		d.stroke("axis", d.x(value), bottom, d.x(value), bottom+4)
	}
}

// foot labels the horizontal axis, which is that of all panels.
func (d *drawing) foot(y float64) {
	y -= panelTop
	for value := 0.0; value <= d.maxX; value += d.across {
		d.line(`<text x="%s" y="%s" text-anchor="middle">%s</text>`, number(d.x(value)), number(y+18), number(value))
	}
	d.line(`<text x="%s" y="%s" text-anchor="middle">%s</text>`, number((left+width-right)/2), number(y+42), escaped(d.chart.X))
}

func (d *drawing) x(value float64) float64 { return left + value/d.maxX*(width-left-right) }

// area fills what is below the steps.
func (d *drawing) area(class string, p *Panel, y func(float64) float64, of func(Step) float64) {
	if len(p.Steps) == 0 {
		return
	}
	var path strings.Builder
	fmt.Fprintf(&path, "M%s %s", number(d.x(p.Steps[0].X)), number(y(0)))
	for i, step := range p.Steps {
		end := p.End
		if i+1 < len(p.Steps) {
			end = p.Steps[i+1].X
		}
		fmt.Fprintf(&path, "V%sH%s", number(y(of(step))), number(d.x(max(end, step.X))))
	}
	fmt.Fprintf(&path, "V%sZ", number(y(0)))
	d.line(`<path class="%s" d="%s"/>`, class, path.String())
}

func (d *drawing) stroke(class string, x1, y1, x2, y2 float64) {
	d.line(`<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`, class, number(x1), number(y1), number(x2), number(y2))
}

func (d *drawing) text(x, y float64, class, text string) {
	d.line(`<text class="%s" x="%s" y="%s">%s</text>`, class, number(x), number(y), escaped(text))
}

func (d *drawing) line(format string, args ...any) { fmt.Fprintf(&d.out, format+"\n", args...) }

// tick is the smallest of 1, 2 or 5 times a power of ten of which so many reach a value.
func tick(most float64, count int) float64 {
	if most <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(most/float64(count))))
	for _, factor := range []float64{1, 2, 5} {
		if factor*power*float64(count) >= most {
			return factor * power
		}
	}
	return 10 * power
}

// number writes at most a tenth, which is finer than a pixel.
func number(value float64) string { return strconv.FormatFloat(math.Round(value*10)/10, 'f', -1, 64) }

func escaped(text string) string {
	var out strings.Builder
	_ = xml.EscapeText(&out, []byte(text)) // a strings.Builder takes everything
	return out.String()
}
