package lint

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	yamlnode "go.yaml.in/yaml/v3"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/manifest"
)

// previousVersion is the version of Kueue's API that Upgrade rewrites.
const previousVersion = "v1beta1"

// Upgrade returns the text of a file with its objects of kueue.x-k8s.io/v1beta1 written in v1beta2, and their number. All other text, comments
// included, stays. Objects that need more than these changes of text are left as they are: quota Workloads, and spec.admissionChecks in braces.
// So are documents that are not readable.
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
	if gvk.Group != kueue.SchemeGroupVersion.Group || gvk.Version != previousVersion || gvk.Kind == "Workload" ||
		kindOf(kueue.SchemeGroupVersion.WithKind(gvk.Kind)) == nil {
		return nil, false
	}
	u := &upgrade{}
	_, version := manifest.Child(o.Node(), "apiVersion")
	if version == nil {
		return nil, false // the item of a typed list, or JSON that is no YAML
	}
	u.replace(version, gvk.GroupVersion().String(), kueue.SchemeGroupVersion.String())
	_, spec := manifest.Child(o.Node(), "spec")
	switch gvk.Kind {
	case "AdmissionCheck":
		delay, _ := manifest.Child(spec, "retryDelayMinutes") // it has no successor
		return u.edits, delay == nil
	case "ClusterQueue":
		if key, _ := manifest.Child(spec, "cohort"); key != nil {
			u.replace(key, "cohort", "cohortName")
		}
		_, fungibility := manifest.Child(spec, "flavorFungibility")
		u.replaceValue(fungibility, "whenCanBorrow", "Borrow")
		u.replaceValue(fungibility, "whenCanPreempt", "Preempt")
		isNested := u.nestChecks(spec)
		return u.edits, isNested
	}
	return u.edits, true
}

// An upgrade collects the edits of an object.
type upgrade struct{ edits []Edit }

func (u *upgrade) replace(node *yamlnode.Node, old, replacement string) {
	u.edits = append(u.edits, Edit{node.Line, node.Column, old, replacement})
}

// replaceValue replaces a value that means MayStopSearch.
func (u *upgrade) replaceValue(of *yamlnode.Node, field, old string) {
	if _, node := manifest.Child(of, field); node != nil && node.Value == old {
		u.replace(node, old, string(kueue.MayStopSearch))
	}
}

// nestChecks moves spec.admissionChecks to spec.admissionChecksStrategy.admissionChecks. It reports whether it can.
func (u *upgrade) nestChecks(spec *yamlnode.Node) bool {
	key, list := manifest.Child(spec, "admissionChecks")
	if key == nil {
		return true
	}
	if spec.Style&yamlnode.FlowStyle != 0 || list.Kind != yamlnode.SequenceNode || key.Column < 2 {
		return false
	}
	u.replace(key, "admissionChecks", "admissionChecksStrategy:\n"+strings.Repeat(" ", key.Column+1)+"admissionChecks")
	for _, item := range list.Content {
		if list.Style&yamlnode.FlowStyle == 0 {
			u.edits = append(u.edits, Edit{item.Line, item.Column, "", "name: "}, Edit{item.Line, 1, "", "  "})
			continue
		}
		text := quote(item) + item.Value + quote(item)
		u.replace(item, text, "{name: "+text+"}")
	}
	return true
}

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

// oldVersion returns the problem of an object of a version that is not served, with the text to write instead.
func oldVersion(s *source, version string) problem {
	p := problem{
		rule: ruleOldVersion(), field: "apiVersion", message: fmt.Sprintf("%s is not served in version %s", s.GVK.Kind, s.GVK.Version),
		cure: "write apiVersion: " + version,
	}
	edits, canUpgrade := upgradeOf(s.Object)
	for _, e := range edits[min(1, len(edits)):] {
		if e.Old == "" {
			continue
		}
		p.cure += fmt.Sprintf(", and in line %d %q instead of %q", e.Line, strings.Join(strings.Fields(e.New), " "), e.Old)
	}
	switch {
	case canUpgrade:
		p.edits = edits
		p.cure += "; --fix writes it"
	case s.GVK.Version == previousVersion && s.GVK.Kind == "AdmissionCheck":
		p.cure += ", and remove spec.retryDelayMinutes, which has no effect"
	case s.GVK.Version == previousVersion:
		p.cure += ", and rename fields: this object needs more than --fix does"
	}
	return p
}
