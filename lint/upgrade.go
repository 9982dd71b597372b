package lint

import (
	"fmt"
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/lint/internal/upgrade"
	"github.com/tranche-dev/tranche/manifest"
)

// An Edit replaces text at a place of a file.
type Edit = upgrade.Edit

// Upgrade returns the text of a file with its objects of earlier versions of kueue.x-k8s.io written in v1beta2, and their number. All other text, comments
// included, stays. Objects that need more than these changes of text are left as they are: quota Workloads with topology assignments, and fields in
// several lines of braces that would have to be moved. So are documents that are not readable.
func Upgrade(file string, content []byte) (text []byte, objects int) {
	read, _ := manifest.Read(file, content)
	var edits []Edit
	for _, o := range read {
		if kindOf(kueue.SchemeGroupVersion.WithKind(o.GVK.Kind)) == nil {
			continue
		}
		if more, canUpgrade := upgrade.Of(o); canUpgrade {
			edits = append(edits, more...)
			objects++
		}
	}
	return upgrade.Apply(content, edits), objects
}

// oldVersion returns the problem of an object of a version that is not served, or is deprecated, with the text to write instead.
func oldVersion(s *source, k *kind) problem {
	p := problem{rule: ruleOldVersion(), field: "apiVersion", message: fmt.Sprintf("%s is not served in version %s", s.GVK.Kind, s.GVK.Version)}
	p.cure = "write apiVersion: " + k.gvk.GroupVersion().String()
	// The CRDs of these serve the previous version, too.
	if s.GVK.Version == upgrade.PreviousVersion && slices.Contains([]string{"ResourceFlavor", "Topology", "WorkloadPriorityClass"}, s.GVK.Kind) {
		p.rule, p.message = ruleDeprecatedVersion(), fmt.Sprintf("version %s of %s is deprecated", s.GVK.Version, s.GVK.Kind)
	}
	edits, canUpgrade := upgrade.Of(s.Object)
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
	case s.GVK.Version == upgrade.PreviousVersion:
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
