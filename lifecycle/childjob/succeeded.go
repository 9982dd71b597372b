package childjob

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// Index returns the index of a Job among those of its ReplicatedJob.
func Index(job *batchv1.Job) (int32, bool) {
	index, err := strconv.ParseInt(job.Labels[jobset.JobIndexKey], 10, 32)
	return int32(index), err == nil
}

// Succeeded has the indexes of Jobs that have succeeded in the current attempt, by ReplicatedJob.
type Succeeded map[string]map[int32]bool

// Add adds the Job of a ReplicatedJob with this index.
func (s Succeeded) Add(replicatedJob string, index int32) {
	if s[replicatedJob] == nil {
		s[replicatedJob] = map[int32]bool{}
	}
	s[replicatedJob][index] = true
}

// AddAll adds all Jobs of a ReplicatedJob.
func (s Succeeded) AddAll(replicatedJob string, replicas int32) {
	for index := range replicas {
		s.Add(replicatedJob, index)
	}
}

// ParseSucceeded parses the result of String, such as "ps=0-3;worker=1,4". It ignores text of another form and indexes beyond the replicas.
func ParseSucceeded(text string, replicas map[string]int32) Succeeded {
	all := Succeeded{}
	for part := range strings.SplitSeq(text, ";") {
		name, ranges, _ := strings.Cut(part, "=")
		for r := range strings.SplitSeq(ranges, ",") {
			from, to, isRange := strings.Cut(r, "-")
			if !isRange {
				to = from
			}
			first, err1 := strconv.ParseInt(from, 10, 32)
			last, err2 := strconv.ParseInt(to, 10, 32)
			if err1 != nil || err2 != nil || first < 0 {
				continue
			}
			for index := int32(first); index <= int32(last) && index < replicas[name]; index++ {
				all.Add(name, index)
			}
		}
	}
	return all
}

// String returns ranges of indexes in a fixed order.
func (s Succeeded) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		var ranges []string
		indexes := slices.Sorted(maps.Keys(s[name]))
		for i := 0; i < len(indexes); i++ {
			first := indexes[i]
			for i+1 < len(indexes) && indexes[i+1] == indexes[i]+1 {
				i++
			}
			if last := indexes[i]; last > first {
				ranges = append(ranges, fmt.Sprintf("%d-%d", first, last))
			} else {
				ranges = append(ranges, strconv.Itoa(int(first)))
			}
		}
		if len(ranges) > 0 {
			parts = append(parts, name+"="+strings.Join(ranges, ","))
		}
	}
	return strings.Join(parts, ";")
}
