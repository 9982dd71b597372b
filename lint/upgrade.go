package lint

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

// previousVersion is the version of Kueue's API that Upgrade rewrites.
const previousVersion = "v1beta1"

// Upgrade returns the text of a file with its objects of kueue.x-k8s.io/v1beta1 written in v1beta2, and their number. All other text, comments
// included, stays. Objects that need more than these changes of text are left as they are: quota Workloads with topology assignments, and fields in
// several lines of braces that would have to be moved. So are documents that are not readable.
func Upgrade(file string, content []byte) (text []byte, objects int) {
	read, _ := manifest.Read(file, content)
	var edits []Edit
	for _, o := range read {
		if more, canUpgrade := upgradeOf(o); canUpgrade {
			edits = append(edits, more...)
			objects++
		}
	}
	return apply(content, edits), objects
}

// An Edit replaces text at a place of a file. It inserts text if Old is empty.
type Edit struct {
	// Line and Column count from 1. Columns count characters.
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Old    string `json:"old"`
	New    string `json:"new"`
}

// upgradeOf returns the edits that rewrite an object, if it is of the old version and they suffice.
func upgradeOf(o *manifest.Object) (edits []Edit, canUpgrade bool) {
	gvk := o.GVK
	if gvk.Group != kueue.SchemeGroupVersion.Group || gvk.Version != previousVersion || kindOf(kueue.SchemeGroupVersion.WithKind(gvk.Kind)) == nil {
		return nil, false
	}
	u := &upgrade{object: o}
	_, version := manifest.Child(o.Node(), "apiVersion")
	if version == nil {
		return nil, false // the item of a typed list, or JSON that is no YAML
	}
	u.replace(version, gvk.GroupVersion().String(), kueue.SchemeGroupVersion.String())
	_, spec := manifest.Child(o.Node(), "spec")
	canUpgrade = true
	switch gvk.Kind {
	case "AdmissionCheck":
		canUpgrade = u.remove(spec, "retryDelayMinutes") // it has had no effect
	case "ClusterQueue":
		if key, _ := manifest.Child(spec, "cohort"); key != nil {
			u.replace(key, "cohort", "cohortName")
		}
		_, fungibility := manifest.Child(spec, "flavorFungibility")
		u.replaceValue(fungibility, "whenCanBorrow", "Borrow")
		u.replaceValue(fungibility, "whenCanPreempt", "Preempt")
		canUpgrade = u.nestChecks(spec)
	case "Workload":
		canUpgrade = u.upgradeWorkload(spec)
	}
	return u.edits, canUpgrade
}

// An upgrade collects the edits of an object.
type upgrade struct {
	object *manifest.Object
	edits  []Edit
}

func (u *upgrade) replace(node *yamlnode.Node, old, replacement string) {
	u.edits = append(u.edits, Edit{node.Line, node.Column, old, replacement})
}

// replaceValue replaces a value that means MayStopSearch.
func (u *upgrade) replaceValue(of *yamlnode.Node, field, old string) {
	if _, node := manifest.Child(of, field); node != nil && node.Value == old {
		u.replace(node, old, string(kueue.MayStopSearch))
	}
}

// remove removes a field. It reports whether it can: the field and what precedes it are in one line.
func (u *upgrade) remove(of *yamlnode.Node, field string) bool {
	key, value := manifest.Child(of, field)
	if key == nil {
		return true
	}
	line := []rune(u.object.Line(key.Line))
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
		u.edits = append(u.edits, Edit{key.Line, begin + 1, string(line[begin:end]), ""})
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
	u.edits = append(u.edits, Edit{key.Line, begin + 1, string(line[begin:end]), ""})
	return true
}

// nestChecks moves spec.admissionChecks to spec.admissionChecksStrategy.admissionChecks. It reports whether it can.
func (u *upgrade) nestChecks(spec *yamlnode.Node) bool {
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
		u.replace(key, quote(key)+key.Value+quote(key), quoted("admissionChecksStrategy", key)+": {"+quoted("admissionChecks", key))
	case key.Column < 2:
		return false
	default:
		u.replace(key, "admissionChecks", "admissionChecksStrategy:\n"+strings.Repeat(" ", key.Column+1)+"admissionChecks")
	}
	for _, item := range list.Content {
		if list.Style&yamlnode.FlowStyle == 0 {
			u.edits = append(u.edits, Edit{item.Line, item.Column, "", "name: "}, Edit{item.Line, 1, "", "  "})
			continue
		}
		text := quote(item) + item.Value + quote(item)
		u.replace(item, text, "{"+quoted("name", key)+": "+text+"}")
	}
	return !inBraces || u.closeBraces(list)
}

// closeBraces writes a brace behind a list in brackets. It reports whether it finds the end of the list: the first bracket behind its last item.
func (u *upgrade) closeBraces(list *yamlnode.Node) bool {
	number, begin := list.Line, list.Column // behind the opening bracket
	if n := len(list.Content); n > 0 {
		last := list.Content[n-1]
		number, begin = last.Line, last.Column-1+len([]rune(last.Value))+2*len(quote(last))
	}
	for {
		line := []rune(u.object.Line(number))
		if len(line) == 0 || begin > len(line) {
			return false
		}
		if i := slices.Index(line[begin:], ']'); i >= 0 && !slices.Contains(line[begin:begin+i], '#') {
			u.edits = append(u.edits, Edit{number, begin + i + 2, "", "}"})
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
func (u *upgrade) upgradeWorkload(spec *yamlnode.Node) bool {
	_, status := manifest.Child(u.object.Node(), "status")
	if key, _ := manifest.Child(status, "accumulatedPastExexcutionTimeSeconds"); key != nil {
		u.replace(key, key.Value, "accumulatedPastExecutionTimeSeconds")
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
		return u.remove(spec, "priorityClassName") && u.remove(spec, "priorityClassSource") // one without the other has had no effect
	case priorityClasses()[source.Value] == nil:
		return false
	}
	ref := priorityClasses()[source.Value]
	u.replace(key, "priorityClassName", "priorityClassRef")
	text := quote(name) + name.Value + quote(name)
	u.replace(name, text, fmt.Sprintf("{%s: %s, %s: %s, %s: %s}", quoted("group", key), quoted(string(ref.Group), key), quoted("kind", key),
		quoted(string(ref.Kind), key), quoted("name", key), text))
	return u.remove(spec, "priorityClassSource")
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

// apply applies edits to a text.
func apply(content []byte, edits []Edit) []byte {
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

// oldVersion returns the problem of an object of a version that is not served, or is deprecated, with the text to write instead.
func oldVersion(s *source, k *kind) problem {
	p := problem{rule: ruleOldVersion(), field: "apiVersion", message: fmt.Sprintf("%s is not served in version %s", s.GVK.Kind, s.GVK.Version)}
	p.cure = "write apiVersion: " + k.gvk.GroupVersion().String()
	// The CRDs of these serve the previous version, too.
	if s.GVK.Version == previousVersion && slices.Contains([]string{"ResourceFlavor", "Topology", "WorkloadPriorityClass"}, s.GVK.Kind) {
		p.rule, p.message = ruleDeprecatedVersion(), fmt.Sprintf("version %s of %s is deprecated", s.GVK.Version, s.GVK.Kind)
	}
	edits, canUpgrade := upgradeOf(s.Object)
	for _, e := range edits[min(1, len(edits)):] {
		if e.Old == "" {
			continue
		}
		if e.New == "" {
			p.cure += fmt.Sprintf(", and in line %d nothing instead of %q", e.Line, strings.Trim(e.Old, ", \r\n"))
			continue
		}
		p.cure += fmt.Sprintf(", and in line %d %q instead of %q", e.Line, strings.Join(strings.Fields(e.New), " "), e.Old)
	}
	switch {
	case canUpgrade:
		p.edits = edits
		p.cure += "; --fix writes it"
	case s.GVK.Version == previousVersion:
		p.cure += ", and " + unfixable(s.GVK.Kind)
	}
	return p
}

// unfixable returns what to do with an object of the old version that --fix does not rewrite.
func unfixable(kind string) string {
	switch kind {
	case "AdmissionCheck":
		return "remove spec.retryDelayMinutes, which has no effect"
	case "ClusterQueue":
		return "name the checks in spec.admissionChecksStrategy.admissionChecks instead of spec.admissionChecks"
	case "Workload":
		return "remove status, and write spec.priorityClassRef with group, kind and name instead of spec.priorityClassName and spec.priorityClassSource"
	}
	return "compare the fields with the reference of the new version"
}
