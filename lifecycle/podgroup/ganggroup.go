package podgroup

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/apis"
)

// GroupsAnnotation lists, as JSON, the gangs that start together.
const GroupsAnnotation = apis.KoordinatorPrefix + "groups"

// readGroup reads which gangs start together with this one.
func (g *Gang) readGroup(problems *Problems) {
	if !g.HasKoordinatorSettings() {
		return
	}
	text, where := g.setting("groups", problems)
	if text == "" {
		return
	}
	var names []string
	if err := json.Unmarshal([]byte(text), &names); err != nil {
		addf(problems, `%s is %q: set a JSON list of gangs such as ["%s/other","%s"]`, where, brief(text), g.Namespace, g.Full())
		return
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for _, name := range names {
		namespace, rest, ok := strings.Cut(name, "/")
		if !ok || !isName(namespace) || !isName(rest) {
			addf(problems, "%s lists %q: name each gang as NAMESPACE/NAME", where, brief(name))
			return
		}
	}
	switch {
	case len(names) > apis.MaxTogether:
		addf(problems, "%s lists %d gangs: list at most %d", where, len(names), apis.MaxTogether)
	case len(names) > 0 && !slices.Contains(names, g.Full()):
		addf(problems, "%s does not list the gang itself: add %q", where, g.Full())
	case len(names) > 1:
		g.GangGroup = names
	}
}

// isName reports whether a text is short and free of characters that would have to be escaped, as names are.
func isName(text string) bool {
	const longest = 253
	return text != "" && len(text) <= longest && strings.Trim(text, "-_.") == text && !strings.ContainsFunc(text, func(c rune) bool { return !isLabelRune(c) })
}

// Peers returns the gangs that start together with this one, without itself.
func (g *Gang) Peers() []Ref {
	var peers []Ref
	for _, full := range g.GangGroup {
		if namespace, name, _ := strings.Cut(full, "/"); full != g.Full() {
			peers = append(peers, Ref{g.Kind, namespace, name})
		}
	}
	return peers
}

// AdmitsInParts reports whether the gang gathers its quota. A gang of a GangGroup does not: each could keep what the other gathers, and no order of
// gangs would be safe.
func (g *Gang) AdmitsInParts() bool { return g.NonStrict && len(g.GangGroup) == 0 }

// GangGroupID is equal for all gangs that name the same gangs, and differs for all others.
func (g *Gang) GangGroupID() string {
	return Digest(append([]string{string(g.Kind)}, g.GangGroup...)...)
}
