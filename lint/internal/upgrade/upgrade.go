// Package upgrade rewrites objects of earlier versions of kueue.x-k8s.io in v1beta2, by edits of their text.
//
// Of returns the edits of an object, and Apply applies those of all objects of a file.
package upgrade

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	yamlnode "go.yaml.in/yaml/v3"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/manifest"
)

// PreviousVersion is the version of Kueue's API that is rewritten. Cohorts and Topologies are also rewritten from the version in which they began.
const (
	PreviousVersion = "v1beta1"
	firstVersion    = "v1alpha1"
)

// An Edit replaces text at a place of a file. It inserts text if Old is empty.
type Edit struct {
	// Line and Column count from 1. Columns count characters.
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Old    string `json:"old"`
	New    string `json:"new"`
}

// Of returns the edits that rewrite an object, if it is of the old version and they suffice.
func Of(o *manifest.Object) (edits []Edit, canUpgrade bool) {
	gvk := o.GVK
	isFirst := gvk.Version == firstVersion && (gvk.Kind == "Cohort" || gvk.Kind == "Topology")
	if gvk.Group != kueue.SchemeGroupVersion.Group || gvk.Version != PreviousVersion && !isFirst {
		return nil, false
	}
	e := &editor{object: o}
	_, version := manifest.Child(o.Node(), "apiVersion")
	if version == nil {
		return nil, false // the item of a typed list, or JSON that is no YAML
	}
	e.replace(version, gvk.GroupVersion().String(), kueue.SchemeGroupVersion.String())
	_, spec := manifest.Child(o.Node(), "spec")
	canUpgrade = true
	switch gvk.Kind {
	case "AdmissionCheck":
		canUpgrade = e.remove(spec, "retryDelayMinutes") // it has had no effect
	case "ClusterQueue":
		if key, _ := manifest.Child(spec, "cohort"); key != nil {
			e.replace(key, "cohort", "cohortName")
		}
		_, fungibility := manifest.Child(spec, "flavorFungibility")
		e.replaceValue(fungibility, "whenCanBorrow", "Borrow")
		e.replaceValue(fungibility, "whenCanPreempt", "Preempt")
		canUpgrade = e.nestChecks(spec)
	case "Cohort":
		if key, _ := manifest.Child(spec, "parent"); key != nil && isFirst {
			e.replace(key, "parent", "parentName")
		}
	case "Workload":
		canUpgrade = e.upgradeWorkload(spec)
	}
	return e.edits, canUpgrade
}

// An editor collects the edits of an object.
type editor struct {
	object *manifest.Object
	edits  []Edit
}

func (e *editor) replace(node *yamlnode.Node, old, replacement string) {
	e.edits = append(e.edits, Edit{node.Line, node.Column, old, replacement})
}

// replaceValue replaces a value that means MayStopSearch.
func (e *editor) replaceValue(of *yamlnode.Node, field, old string) {
	if _, node := manifest.Child(of, field); node != nil && node.Value == old {
		e.replace(node, old, string(kueue.MayStopSearch))
	}
}

// remove removes a field. It reports whether it can: the field and what precedes it are in one line.
func (e *editor) remove(of *yamlnode.Node, field string) bool {
	key, value := manifest.Child(of, field)
	if key == nil {
		return true
	}
	line := []rune(e.object.Line(key.Line))
	end := value.Column - 1 + len([]rune(value.Value)) + 2*len(quote(value))
	if value.Kind != yamlnode.ScalarNode || value.Line != key.Line || end > len(line) {
		return false
	}
	begin := key.Column - 1
	if of.Style&yamlnode.FlowStyle == 0 {
		rest := strings.TrimSpace(string(line[end:]))
		if strings.TrimSpace(string(line[:begin])) == "" && rest == "" {
			begin, end = 0, len(line) // the whole line, with its end
		}
		e.edits = append(e.edits, Edit{key.Line, begin + 1, string(line[begin:end]), ""})
		return len(of.Content) > 2 // an empty block has no text
	}
	at := slices.Index(of.Content, key)
	switch {
	case at+2 < len(of.Content):
		next := of.Content[at+2]
		end = next.Column - 1
		if next.Line != key.Line {
			return false
		}
	case at > 0:
		comma := strings.LastIndex(string(line[:begin]), ",")
		if of.Content[at-1].Line != key.Line || comma < 0 {
			return false
		}
		begin = len([]rune(string(line[:begin])[:comma]))
	}
	e.edits = append(e.edits, Edit{key.Line, begin + 1, string(line[begin:end]), ""})
	return true
}

// nestChecks moves spec.admissionChecks to spec.admissionChecksStrategy.admissionChecks. It reports whether it can.
func (e *editor) nestChecks(spec *yamlnode.Node) bool {
	key, list := manifest.Child(spec, "admissionChecks")
	if key == nil {
		return true
	}
	if strategy, _ := manifest.Child(spec, "admissionChecksStrategy"); strategy != nil || list.Kind != yamlnode.SequenceNode {
		return false
	}
	inBraces := spec.Style&yamlnode.FlowStyle != 0
	switch {
	case inBraces:
		e.replace(key, quote(key)+key.Value+quote(key), quoted("admissionChecksStrategy", key)+": {"+quoted("admissionChecks", key))
	case key.Column < 2:
		return false
	default:
		e.replace(key, "admissionChecks", "admissionChecksStrategy:\n"+strings.Repeat(" ", key.Column+1)+"admissionChecks")
	}
	for _, item := range list.Content {
		if list.Style&yamlnode.FlowStyle == 0 {
			e.edits = append(e.edits, Edit{item.Line, item.Column, "", "name: "}, Edit{item.Line, 1, "", "  "})
			continue
		}
		text := quote(item) + item.Value + quote(item)
		e.replace(item, text, "{"+quoted("name", key)+": "+text+"}")
	}
	return !inBraces || e.closeBraces(list)
}

// closeBraces writes a brace behind a list in brackets. It reports whether it finds the end of the list: the first bracket behind its last item.
func (e *editor) closeBraces(list *yamlnode.Node) bool {
	number, begin := list.Line, list.Column // behind the opening bracket
	if n := len(list.Content); n > 0 {
		last := list.Content[n-1]
		number, begin = last.Line, last.Column-1+len([]rune(last.Value))+2*len(quote(last))
	}
	for {
		line := []rune(e.object.Line(number))
		if len(line) == 0 || begin > len(line) {
			return false
		}
		if i := slices.Index(line[begin:], ']'); i >= 0 && !slices.Contains(line[begin:begin+i], '#') {
			e.edits = append(e.edits, Edit{number, begin + i + 2, "", "}"})
			return true
		}
		number, begin = number+1, 0
	}
}

// priorityClasses are the sources of priority classes of the old version, with the references of the new one.
func priorityClasses() map[string]*kueue.PriorityClassRef {
	return map[string]*kueue.PriorityClassRef{
		"kueue.x-k8s.io/workloadpriorityclass": kueue.NewWorkloadPriorityClassRef(""), "scheduling.k8s.io/priorityclass": kueue.NewPodPriorityClassRef(""),
	}
}

// upgradeWorkload rewrites a quota Workload. It reports whether it can.
func (e *editor) upgradeWorkload(spec *yamlnode.Node) bool {
	_, status := manifest.Child(e.object.Node(), "status")
	if key, _ := manifest.Child(status, "accumulatedPastExexcutionTimeSeconds"); key != nil {
		e.replace(key, key.Value, "accumulatedPastExecutionTimeSeconds")
	}
	_, admission := manifest.Child(status, "admission")
	_, assignments := manifest.Child(admission, "podSetAssignments")
	for i := range len(contentOf(assignments)) {
		_, assignment := manifest.Child(assignments, strconv.Itoa(i))
		if topology, _ := manifest.Child(assignment, "topologyAssignment"); topology != nil {
			return false // its domains are written in another way
		}
	}
	key, name := manifest.Child(spec, "priorityClassName")
	_, source := manifest.Child(spec, "priorityClassSource")
	switch {
	case key == nil || name.Value == "" || source == nil || source.Value == "":
		return e.remove(spec, "priorityClassName") && e.remove(spec, "priorityClassSource") // one without the other has had no effect
	case priorityClasses()[source.Value] == nil:
		return false
	}
	ref := priorityClasses()[source.Value]
	e.replace(key, "priorityClassName", "priorityClassRef")
	text := quote(name) + name.Value + quote(name)
	e.replace(name, text, fmt.Sprintf("{%s: %s, %s: %s, %s: %s}", quoted("group", key), quoted(string(ref.Group), key), quoted("kind", key),
		quoted(string(ref.Kind), key), quoted("name", key), text))
	return e.remove(spec, "priorityClassSource")
}

func contentOf(node *yamlnode.Node) []*yamlnode.Node {
	if node == nil {
		return nil
	}
	return node.Content
}

// quoted returns a text in the quotes of a key.
func quoted(text string, key *yamlnode.Node) string { return quote(key) + text + quote(key) }

// quote returns the character around a text.
func quote(node *yamlnode.Node) string {
	switch {
	case node.Style&yamlnode.DoubleQuotedStyle != 0:
		return `"`
	case node.Style&yamlnode.SingleQuotedStyle != 0:
		return "'"
	}
	return ""
}

// Apply applies edits to a text.
func Apply(content []byte, edits []Edit) []byte {
	lines := slices.Collect(bytes.Lines(content))
	// From the end of each line, so that columns stay right.
	slices.SortStableFunc(edits, func(a, b Edit) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(b.Column, a.Column)) })
	for _, e := range edits {
		line := string(lines[e.Line-1])
		start := len(string([]rune(line)[:e.Column-1]))
		lines[e.Line-1] = []byte(line[:start] + strings.Replace(line[start:], e.Old, e.New, 1))
	}
	return bytes.Join(lines, nil)
}
