package plan

import (
	"fmt"
	"io"
	"strings"

	"github.com/tranche-dev/tranche/plan"
)

// maxRows is how many rows of a kind a table has: GitHub limits comments to 65,536 characters.
const maxRows = 50

// writeMarkdown prints a plan as a comment of a pull request.
func writeMarkdown(out io.Writer, p *plan.Plan) error {
	w := &writer{out: out, maxNames: maxNames}
	w.printf("### Tranche plan: %s\n\n", summary(p))
	w.printf("Snapshot of %s, simulated for %s. Objects: %s.\n", p.TakenAt.UTC().Format("2006-01-02 15:04:05Z"), elapsed(p.Until.Sub(p.TakenAt)), actions(p))
	w.objects(p)
	if len(p.Queues) > 0 {
		w.printf("\n| ClusterQueue | after the change |\n|---|---|\n")
		for _, q := range p.Queues {
			w.printf("| %s | %s |\n", escaped(q.Name), escaped(queueText(&q)))
		}
	}
	w.consequences(p)
	w.folded(fmt.Sprintf("%d unknown starts", len(p.Unknown)), w.unknownLines(p))
	w.folded("Without a maximum execution time, and so never ended by the simulation", p.Endless)
	w.folded("Not simulated", p.NotSimulated)
	w.folded("Ignored", p.Ignored)
	return w.err
}

func (w *writer) objects(p *plan.Plan) {
	var rows []string
	for i := range p.Objects {
		o := &p.Objects[i]
		if o.Action == plan.Unchanged {
			continue
		}
		var fields []string
		for _, line := range w.shortened(fieldLines(o)) {
			fields = append(fields, escaped(line))
		}
		rows = append(rows, fmt.Sprintf("| %s | %s | %s |", strings.ToLower(string(o.Action)), escaped(o.String()), strings.Join(fields, "<br>")))
	}
	w.rows("| change | object | fields |\n|---|---|---|", rows)
}

func (w *writer) consequences(p *plan.Plan) {
	if len(p.Consequences) == 0 {
		return
	}
	w.printf("\n| consequence | for | details |\n|---|---|---|\n")
	for _, kind := range plan.Kinds() {
		all := ofKind(p, kind)
		for i := range all[:min(len(all), maxRows)] {
			w.printf("| **%s** | %s | %s |\n", words(kind), escaped(subject(&all[i].Stage)), escaped(w.details(p, &all[i])))
		}
		if more := len(all) - maxRows; more > 0 {
			w.printf("| **%s** | %d more | |\n", words(kind), more)
		}
	}
}

// rows prints a table.
func (w *writer) rows(header string, rows []string) {
	if len(rows) == 0 {
		return
	}
	w.printf("\n%s\n", header)
	for _, row := range rows[:min(len(rows), maxRows)] {
		w.printf("%s\n", row)
	}
	if more := len(rows) - maxRows; more > 0 {
		w.printf("| %d more | | |\n", more)
	}
}

// folded prints a list that the reader opens.
func (w *writer) folded(title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	w.printf("\n<details><summary>%s</summary>\n\n", title)
	for _, line := range lines[:min(len(lines), maxRows)] {
		w.printf("- %s\n", escaped(line))
	}
	if more := len(lines) - maxRows; more > 0 {
		w.printf("- %d more\n", more)
	}
	w.printf("\n</details>\n")
}

// escaped returns text that Markdown shows as it is, also in a table.
func escaped(text string) string {
	return strings.NewReplacer(
		`\`, `\\`, "|", `\|`, "<", "&lt;", ">", "&gt;", "*", `\*`, "_", `\_`, "`", "\\`", "[", `\[`, "]", `\]`, "#", `\#`, "@", "&#64;", "\n", " ",
	).Replace(text)
}
