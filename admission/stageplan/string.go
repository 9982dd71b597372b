package stageplan

import (
	"slices"
	"strings"
)

// String describes the plan on one line. A chain of stages reads
//
//	initializer -Succeeded-> launcher -Ready-> trainer-node
//
// Where a plan branches or joins, a new part begins after a semicolon; conditions that hold together are joined by &, and a
// condition on a part of a stage names that part in brackets:
//
//	data -Succeeded-> ps.train; ps.train[train] -Succeeded-> eval & data -Succeeded-> eval
func (p *Plan) String() string {
	var b strings.Builder
	for i := range p.Stages {
		stage := &p.Stages[i]
		if p.continuesChain(i) {
			b.WriteString(" -" + string(stage.After[0].Status) + "-> " + stage.Name)
			continue
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(p.part(stage))
	}
	return b.String()
}

// continuesChain reports whether a stage waits for the whole stage before it and nothing else.
func (p *Plan) continuesChain(i int) bool {
	after := p.Stages[i].After
	return len(after) == 1 && after[0].Stage == i-1 && slices.Equal(after[0].Targets, p.Stages[i-1].ReplicatedJobs)
}

func (p *Plan) part(stage *Stage) string {
	if len(stage.After) == 0 {
		return stage.Name
	}
	var arrows []string
	for _, c := range stage.After {
		before := p.Stages[c.Stage].Name
		if !slices.Equal(c.Targets, p.Stages[c.Stage].ReplicatedJobs) {
			before += "[" + strings.Join(c.Targets, ",") + "]"
		}
		arrows = append(arrows, before+" -"+string(c.Status)+"-> "+stage.Name)
	}
	return strings.Join(arrows, " & ")
}
