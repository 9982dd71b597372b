package flavor

import (
	"iter"

	"github.com/tranche-dev/tranche/admission/quota"
)

// MaxChoices bounds how many combinations of flavors are tried for one stage. For the rest of a plan the bound is divided by the number of its
// stages.
const MaxChoices = 256

// A Choice has the index of an option for each item.
type Choice []int

// Choices yields combinations of options, those of the first options first: the last item changes fastest.
//
// If there are more combinations than the limit, the first items keep all their options and the others only have their first option.
// So a combination that is yielded is still yielded when one of the items is fixed to its option.
func Choices(items []Item, limit int) iter.Seq[Choice] {
	width := make([]int, len(items))
	for i := range items {
		width[i] = 1
		if n := len(items[i].Options); n <= limit {
			width[i] = n
			limit /= n
		}
	}
	return func(yield func(Choice) bool) {
		choice := make(Choice, len(items))
		for yield(choice) {
			i := len(items) - 1
			for ; i >= 0; i-- {
				if choice[i]++; choice[i] < width[i] {
					break
				}
				choice[i] = 0
			}
			if i < 0 {
				return
			}
		}
	}
}

// Usage returns the total usage of the items under this choice.
func (c Choice) Usage(items []Item) quota.Usage {
	if len(items) == 1 {
		return items[0].Options[c[0]].Usage
	}
	var usage quota.Usage
	for i := range items {
		usage.AddAll(items[i].Options[c[i]].Usage)
	}
	return usage
}
