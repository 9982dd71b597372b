package trace

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Conversion is how jobs of another system become JobSets.
type Conversion struct {
	// Namespace is that of all jobs.
	Namespace string
	// Queue is the LocalQueue of all jobs. If it is empty, each job goes to the one that has the name of its partition.
	Queue string
	// Processor is what a processor of the standard workload format becomes.
	Processor corev1.ResourceName
}

// Converted is a trace of another system.
type Converted struct {
	Jobs []*Job
	// Skipped counts the jobs that are left out by the reason.
	Skipped map[string]int
}

// The reasons for which jobs are left out.
const (
	neverRan   = "never ran"
	hasNoSize  = "ask for nothing"
	hasNoQueue = "have no partition: name a queue for all jobs"
	isStep     = "are steps of other jobs"
)

// swfFields is how many fields a line of the standard workload format has.
const swfFields = 18

// FromSWF reads the standard workload format of the Parallel Workloads Archive: 18 numbers a line, and comments that begin with a semicolon. Each job
// becomes one pod with the processors that it was allocated, or else requested. That a job depends on another one is ignored.
//
// Source: S. J. Chapin et al., Benchmarks and Standards for the Evaluation of Parallel Job Schedulers (1999), and the archive's description of the format.
func FromSWF(r io.Reader, c *Conversion) (*Converted, error) {
	result := &Converted{Skipped: map[string]int{}}
	lines := bufio.NewScanner(r)
	var problems problems
	for number := 1; lines.Scan(); number++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || strings.HasPrefix(text, ";") {
			continue
		}
		values, err := swfValues(text)
		if err != nil {
			problems.add(number, err)
			continue
		}
		result.add(c.swfJob(values))
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the trace: %w", err)
	}
	return result.finish(problems)
}

func swfValues(text string) ([]float64, error) {
	words := strings.Fields(text)
	if len(words) != swfFields {
		return nil, fmt.Errorf("has %d fields: a line of the standard workload format has %d", len(words), swfFields)
	}
	values := make([]float64, swfFields)
	for i, word := range words {
		var err error
		if values[i], err = strconv.ParseFloat(word, 64); err != nil || math.IsNaN(values[i]) || math.Abs(values[i]) > math.MaxInt32*1000 {
			return nil, fmt.Errorf("field %d is %q: it must be a number", i+1, word)
		}
	}
	return values, nil
}

// swfJob returns the job of a line, or why it is left out.
func (c *Conversion) swfJob(v []float64) (*Job, string) {
	const number, submit, run, allocated, requested, limit, queue = 0, 1, 3, 4, 7, 8, 14
	processors := v[allocated]
	if processors <= 0 {
		processors = v[requested]
	}
	switch {
	case v[run] <= 0:
		return nil, neverRan
	case processors <= 0:
		return nil, hasNoSize
	}
	job := &Job{
		Submit: seconds(v[submit]), Namespace: c.Namespace, Name: fmt.Sprintf("job-%.0f", v[number]),
		Queue: cmp.Or(c.Queue, fmt.Sprintf("queue-%.0f", max(0, v[queue]))), Stages: fmt.Sprintf("%s=%.0f", c.Processor, math.Ceil(processors)),
	}
	job.setTimes(seconds(v[run]), seconds(v[limit]))
	return job, ""
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// setTimes sets the run time and the limit. A job whose run was stopped at its limit runs to its end, so that its pods hold as much as they did.
func (j *Job) setTimes(run, limit time.Duration) {
	run = max(time.Second, run.Round(time.Second))
	j.Run = strconv.FormatInt(int64(run/time.Second), 10)
	if limit > 0 {
		j.Limit = strconv.FormatInt(int64(max(limit.Round(time.Second), run+time.Second)/time.Second), 10)
	}
}

func (c *Converted) add(job *Job, skipped string) {
	if skipped != "" {
		c.Skipped[skipped]++
		return
	}
	c.Jobs = append(c.Jobs, job)
}

// finish counts times from the first submission.
func (c *Converted) finish(problems problems) (*Converted, error) {
	if err := problems.err(); err != nil {
		return nil, err
	}
	if len(c.Jobs) == 0 {
		return nil, errors.New("the file has no jobs that ran")
	}
	slices.SortStableFunc(c.Jobs, func(a, b *Job) int { return cmp.Compare(a.Submit, b.Submit) })
	first := c.Jobs[0].Submit
	for _, job := range c.Jobs {
		job.Submit -= first
	}
	return c, nil
}

// FromSlurm reads what Slurm's sacct prints with --parsable2 and --allocations: fields JobID, Submit, ElapsedRaw and AllocTRES or ReqTRES, and Partition and
// TimelimitRaw if they are there. Each job becomes as many pods as it has nodes.
func FromSlurm(r io.Reader, c *Conversion) (*Converted, error) {
	rows := csv.NewReader(r)
	rows.Comma, rows.LazyQuotes, rows.FieldsPerRecord = '|', true, -1
	header, err := rows.Read()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if missing := missingFields(header); missing != "" {
		return nil, fmt.Errorf("the first line has no field %s: run sacct --allusers --allocations --parsable2 --format=%s", missing, strings.Join(SlurmFields(), ","))
	}
	result := &Converted{Skipped: map[string]int{}}
	var problems problems
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		line, _ := rows.FieldPos(0)
		fields := map[string]string{}
		for i, value := range row[:min(len(row), len(header))] {
			fields[header[i]] = value
		}
		job, skipped, err := c.slurmJob(fields)
		if err != nil {
			problems.add(line, err)
			continue
		}
		result.add(job, skipped)
	}
	return result.finish(problems)
}

// SlurmFields returns the fields that FromSlurm reads.
func SlurmFields() []string {
	return []string{"JobID", "Submit", "ElapsedRaw", "TimelimitRaw", "AllocTRES", "ReqTRES", "Partition"}
}

// missingFields returns the first field that is required and missing.
func missingFields(header []string) string {
	for _, name := range SlurmFields()[:3] {
		if !slices.Contains(header, name) {
			return name
		}
	}
	if !slices.Contains(header, "AllocTRES") && !slices.Contains(header, "ReqTRES") {
		return "AllocTRES"
	}
	return ""
}

// slurmJob returns the job of a line, or why it is left out.
func (c *Conversion) slurmJob(fields map[string]string) (job *Job, skipped string, err error) {
	if strings.Contains(fields["JobID"], ".") {
		return nil, isStep, nil
	}
	elapsed, err := strconv.ParseInt(fields["ElapsedRaw"], 10, 64)
	if err != nil || elapsed < 0 || elapsed > math.MaxInt32 {
		return nil, "", fmt.Errorf("field ElapsedRaw is %q: it must be seconds", fields["ElapsedRaw"])
	}
	if elapsed == 0 {
		return nil, neverRan, nil
	}
	submit, err := time.Parse("2006-01-02T15:04:05", fields["Submit"])
	if err != nil {
		return nil, "", fmt.Errorf("field Submit is %q: it must be a time such as 2026-11-02T08:00:00", fields["Submit"])
	}
	stages, err := slurmStages(cmp.Or(fields["AllocTRES"], fields["ReqTRES"]))
	if err != nil {
		return nil, "", err
	}
	if stages == "" {
		return nil, hasNoSize, nil
	}
	job = &Job{
		Submit: submit.Sub(time.Unix(0, 0)), Namespace: c.Namespace, Name: "job-" + nameOf(fields["JobID"]),
		Queue: cmp.Or(c.Queue, nameOf(fields["Partition"])), Stages: stages,
	}
	if job.Queue == "" {
		return nil, hasNoQueue, nil
	}
	// Jobs without a limit have the word UNLIMITED or Partition_Limit here.
	minutes, _ := strconv.ParseFloat(fields["TimelimitRaw"], 64)
	job.setTimes(time.Duration(elapsed)*time.Second, seconds(60*min(minutes, math.MaxInt32/60)))
	return job, "", nil
}

// nameOf makes a word a name of Kubernetes: the jobs of an array are 12_3, and jobs for several partitions name all of them.
func nameOf(word string) string {
	word, _, _ = strings.Cut(word, ",")
	return strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, word), "-")
}

// slurmStages returns the pods for trackable resources such as billing=8,cpu=8,gres/gpu=4,mem=32G,node=2. Each node becomes a pod with an equal part.
func slurmStages(tres string) (string, error) {
	amounts := map[string]float64{}
	if tres == "" {
		return "", nil
	}
	for part := range strings.SplitSeq(tres, ",") {
		name, value, _ := strings.Cut(part, "=")
		n, err := slurmAmount(value)
		if err != nil {
			return "", fmt.Errorf("%q of %q: %w", part, tres, err)
		}
		amounts[name] = n
	}
	pods := max(1, amounts["node"])
	var requests []string
	for _, r := range []struct{ from, to, unit string }{{"cpu", "cpu", ""}, {"mem", "memory", "Mi"}, {"gres/gpu", "nvidia.com/gpu", ""}} {
		if amounts[r.from] > 0 {
			requests = append(requests, fmt.Sprintf("%s=%.0f%s", r.to, math.Ceil(amounts[r.from]/pods), r.unit))
		}
	}
	if len(requests) == 0 {
		return "", nil
	}
	return fmt.Sprintf("%.0f*%s", pods, strings.Join(requests, ",")), nil
}

// slurmAmount reads a number, or an amount of memory in MiB: 32G, 4000M.
func slurmAmount(text string) (float64, error) {
	const mib = 1 << 20
	unit := 1.0
	for suffix, size := range map[string]float64{"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40} {
		if rest, has := strings.CutSuffix(text, suffix); has {
			text, unit = rest, size/mib
		}
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n < 0 || math.IsNaN(n) || n > math.MaxInt32 {
		return 0, errors.New("it must be a number, or an amount of memory such as 32G")
	}
	return n * unit, nil
}
