package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/snapshot"
)

// A Field is a field of an object that has another value. An empty value is that of a field that is absent.
type Field struct {
	// Path names the field as in spec.resourceGroups[0].flavors[a100].resources[nvidia.com/gpu].nominalQuota.
	Path   string `json:"path"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// IsUnnamed is true if the manifest does not name the field. Then it changes only if an earlier apply has set it: a snapshot does not show which
	// client owns a field, and one that another client has set stays.
	IsUnnamed bool `json:"isUnnamed,omitempty"`
}

// tree returns an object as JSON decodes it, so that equal quantities and times are equal.
func tree(object any) (map[string]any, error) {
	content, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var decoded map[string]any
	err = json.Unmarshal(content, &decoded)
	return decoded, err
}

// fieldsOf returns the fields in which two versions of an object differ that users write.
func fieldsOf(before, after any) ([]Field, error) {
	old, err := tree(before)
	if err != nil {
		return nil, err
	}
	now, err := tree(after)
	if err != nil {
		return nil, err
	}
	d := &difference{}
	d.compare("", usersPart(old), usersPart(now))
	return d.fields, nil
}

// markUnnamed marks the fields that a manifest does not name. It names all elements of a list that it has, also those that it leaves out. Those of JobSets
// and Jobs stay as they are if it does not name them: what changes then is what admission policies write.
func markUnnamed(fields []Field, kind *snapshot.Kind, manifest snapshot.Object) error {
	if kind.GVK.Kind == "JobSet" || kind.GVK.Kind == jobKind {
		return nil
	}
	named, err := fieldsOf(struct{}{}, kind.Reduce(copyOf(manifest)))
	if err != nil {
		return err
	}
	for i := range fields {
		path, _, _ := strings.Cut(fields[i].Path, " (order)")
		list := path
		if !strings.HasPrefix(path, "metadata.") { // there brackets are around keys, not around list elements
			list, _, _ = strings.Cut(path, "[")
		}
		fields[i].IsUnnamed = !slices.ContainsFunc(named, func(f Field) bool { return isWithin(f.Path, list) || isWithin(path, f.Path) })
	}
	return nil
}

// usersPart returns an object without its identity and what the API server and controllers write.
func usersPart(object map[string]any) map[string]any {
	kept := maps.Clone(object)
	for _, key := range []string{"apiVersion", "kind", "status", "metadata"} {
		delete(kept, key)
	}
	if metadata, has := object["metadata"].(map[string]any); has {
		written := map[string]any{}
		for _, key := range []string{"labels", "annotations"} {
			if values, has := metadata[key]; has {
				written[key] = values
			}
		}
		kept["metadata"] = written
	}
	return kept
}

// A difference collects fields that differ.
type difference struct{ fields []Field }

func (d *difference) compare(path string, before, after any) {
	oldMap, oldIsMap := before.(map[string]any)
	newMap, newIsMap := after.(map[string]any)
	oldList, oldIsList := before.([]any)
	newList, newIsList := after.([]any)
	switch {
	case (oldIsMap || before == nil) && (newIsMap || after == nil) && (oldIsMap || newIsMap):
		d.compareMaps(path, oldMap, newMap)
	case (oldIsList || before == nil) && (newIsList || after == nil) && (oldIsList || newIsList):
		d.compareLists(path, oldList, newList)
	default:
		if a, b := text(before), text(after); a != b {
			d.fields = append(d.fields, Field{Path: path, Before: a, After: b})
		}
	}
}

func (d *difference) compareMaps(path string, before, after map[string]any) {
	keys := slices.Collect(maps.Keys(before))
	keys = slices.AppendSeq(keys, maps.Keys(after))
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		part := "." + key
		switch {
		case strings.ContainsAny(key, "./"):
			part = "[" + key + "]"
		case path == "":
			part = key
		}
		d.compare(path+part, before[key], after[key])
	}
}

// compareLists compares elements that have names by their names, and others by their index.
func (d *difference) compareLists(path string, before, after []any) {
	oldNames, newNames := namesIn(before), namesIn(after)
	if oldNames == nil || newNames == nil {
		for i := range max(len(before), len(after)) {
			d.compare(fmt.Sprintf("%s[%d]", path, i), at(before, i), at(after, i))
		}
		return
	}
	for i, name := range oldNames {
		d.compare(fmt.Sprintf("%s[%s]", path, name), before[i], at(after, slices.Index(newNames, name)))
	}
	for i, name := range newNames {
		if !slices.Contains(oldNames, name) {
			d.compare(fmt.Sprintf("%s[%s]", path, name), nil, after[i])
		}
	}
	keptBefore := slices.DeleteFunc(slices.Clone(oldNames), func(name string) bool { return !slices.Contains(newNames, name) })
	keptAfter := slices.DeleteFunc(slices.Clone(newNames), func(name string) bool { return !slices.Contains(oldNames, name) })
	if !slices.Equal(keptBefore, keptAfter) {
		d.fields = append(d.fields, Field{Path: path + " (order)", Before: strings.Join(keptBefore, ", "), After: strings.Join(keptAfter, ", ")})
	}
}

func at(list []any, i int) any {
	if i < 0 || i >= len(list) {
		return nil
	}
	return list[i]
}

// namesIn returns the names of the elements of a list, or nil if they are not objects with different names. An empty list has none.
func namesIn(list []any) []string {
	names := []string{}
	for _, element := range list {
		object, _ := element.(map[string]any)
		name, hasName := object["name"].(string)
		if !hasName || slices.Contains(names, name) {
			return nil
		}
		names = append(names, name)
	}
	return names
}

// text returns a value for users.
func text(value any) string {
	switch value := value.(type) {
	case nil:
		return ""
	case string:
		return cmp.Or(value, `""`)
	case map[string]any, []any:
		content, err := json.Marshal(value)
		if err != nil {
			return fmt.Sprint(value)
		}
		return string(content)
	}
	return fmt.Sprint(value)
}
