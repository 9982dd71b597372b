// The usage of a ClusterQueue over time.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { amount, clock, minute } from "./format.js";

const strokes = ["--plot-1", "--plot-2", "--plot-3", "--plot-4"];

// colors returns a function that resolves a custom property to a color that a canvas knows.
function colors() {
  return (name) => {
    const probe = document.body.appendChild(document.createElement("i"));
    probe.style.color = `var(${name})`;
    const { color } = getComputedStyle(probe);
    probe.remove();
    return color;
  };
}

// options returns those of a plot of the series of one resource.
function options(times, series, resource, width) {
  const color = colors();
  const now = times[times.length - 1]; // uPlot shows years around a single time
  const isBytes = amount(resource, 1024) === "1Ki";
  const axis = { stroke: color("--text"), grid: { stroke: color("--line") }, ticks: { stroke: color("--line") } };
  return {
    width, height: 160, cursor: { drag: { x: false, y: false } },
    scales: { x: { time: true, range: () => [Math.min(times[0], now - 600), now] }, y: { range: (_, low, high) => [0, Math.max(1, high)] } },
    axes: [
      { ...axis, values: (_, ticks) => ticks.map((t) => minute(t * 1000)) },
      { ...axis, size: 70, values: (_, ticks) => ticks.map((v) => amount(resource, v)), ...(isBytes && { incrs: Array.from({ length: 61 }, (_, i) => 2 ** i) }) },
    ],
    // Without a pointer the legend has the last values.
    series: [{ label: "Time", value: (_, t) => (t === null ? "now" : clock(t * 1000)) }, ...series.map((s, i) => ({
      label: s.label, stroke: color(s.color || strokes[i % strokes.length]), fill: s.color && color(s.color), width: s.color ? 1 : 2, points: { show: s.values.length < 3 },
      value: (_, v, __, index) => amount(resource, s.values[index === null ? s.values.length - 1 : index]),
    }))],
  };
}

// stacked returns what the series of a stack reach up to, the first of which is on top.
const stacked = (series) => series.map((s, i) => s.values.map((v, k) => (v === null ? null : series.slice(i).reduce((sum, other) => sum + other.values[k], 0))));

// Plot draws series as lines, or in a stack as areas of their colors.
export function Plot({ title, resource, times, series, theme, isStacked }) {
  const place = useRef(null);
  useEffect(() => {
    const node = place.current;
    const plot = new uPlot(options(times, series, resource, node.clientWidth), [times, ...(isStacked ? stacked(series) : series.map((s) => s.values))], node);
    const resized = new ResizeObserver(() => plot.setSize({ width: node.clientWidth, height: 160 }));
    resized.observe(node);
    return () => {
      resized.disconnect();
      plot.destroy();
    };
  }, [JSON.stringify([times, series]), theme]);
  const last = series.map((s) => `${s.label} ${amount(resource, s.values[s.values.length - 1])}`).join(", ");
  return (
    <figure>
      <figcaption>{title}</figcaption>
      <div class="plot" ref={place} role="img" aria-label={`${title}; now ${last}`} />
    </figure>
  );
}
