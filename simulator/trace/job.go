// Package trace reads traces of jobs, replays them on virtual time with the queues of a cluster, and reports how long jobs of each size wait.
package trace

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/simulator/replay"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// A Job is one line of a trace: a JobSet that is submitted, and how long its pods take. Fields are as in the trace.
type Job struct {
	// Line is that of the job in its file, from 1.
	Line int
	// Submit is when it is submitted, after the first job of the trace.
	Submit          time.Duration
	Namespace, Name string
	// Queue is the LocalQueue.
	Queue string
	// Stages are the ReplicatedJobs, as in a scenario: prepare(cpu=2)=Succeeded=>train(4*nvidia.com/gpu=8). Without brackets there is one: 4*nvidia.com/gpu=8.
	Stages string
	// Run is how long after their start the pods succeed, and Ready how long after it they are ready: one duration, or JOB:DURATION with commas.
	Run, Ready string
	// Limit is the maximum execution time of each stage, or "" for none.
	Limit string
	// Class is the WorkloadPriorityClass, or "" for none.
	Class string
}

// columns are those of a trace. Required ones come first.
var columns = []struct {
	name       string
	isRequired bool
	field      func(*Job) *string
}{
	{"submit", true, nil},
	{"queue", true, func(j *Job) *string { return &j.Queue }},
	{"stages", true, func(j *Job) *string { return &j.Stages }},
	{"run", true, func(j *Job) *string { return &j.Run }},
	{"name", false, func(j *Job) *string { return &j.Name }},
	{"namespace", false, func(j *Job) *string { return &j.Namespace }},
	{"ready", false, func(j *Job) *string { return &j.Ready }},
	{"limit", false, func(j *Job) *string { return &j.Limit }},
	{"class", false, func(j *Job) *string { return &j.Class }},
}

// Columns returns the names of the columns that a trace can have, the required ones first.
func Columns() []string {
	var names []string
	for i := range columns {
		names = append(names, columns[i].name)
	}
	return names
}

// maxProblems is how many wrong lines an error names.
const maxProblems = 10

// Read reads a trace: comma-separated values with a line of column names. Lines that begin with # are comments. Jobs that name no namespace get this one.
// The error names the wrong lines.
func Read(r io.Reader, namespace string) ([]*replay.Arrival, error) {
	jobs, err := readJobs(r, namespace)
	if err != nil {
		return nil, err
	}
	var arrivals []*replay.Arrival
	problems := problems{}
	seen := map[types.NamespacedName]int{}
	for _, job := range jobs {
		a, err := job.arrival()
		if err != nil {
			problems.add(job.Line, err)
			continue
		}
		if line, twice := seen[a.Key()]; twice {
			problems.add(job.Line, fmt.Errorf("column name: %q is also the name in line %d: give each job of a namespace another name", job.Name, line))
			continue
		}
		seen[a.Key()] = job.Line
		arrivals = append(arrivals, a)
	}
	return arrivals, problems.err()
}

// problems collects the first errors of a file.
type problems struct {
	errs  []error
	total int
}

func (p *problems) add(line int, err error) {
	if p.total++; p.total <= maxProblems {
		p.errs = append(p.errs, fmt.Errorf("line %d: %w", line, err))
	}
}

func (p *problems) err() error {
	if p.total > maxProblems {
		p.errs = append(p.errs, fmt.Errorf("and %d more wrong lines", p.total-maxProblems))
	}
	return errors.Join(p.errs...)
}

// readJobs reads the lines of a trace.
func readJobs(r io.Reader, namespace string) ([]*Job, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read the trace: %w", err)
	}
	rows := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(text, []byte("\ufeff")))) // spreadsheets begin with a byte order mark
	rows.Comment, rows.TrimLeadingSpace = '#', true
	header, err := rows.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("the trace is empty: its first line names the columns, such as %s", strings.Join(Columns()[:4], ","))
	} else if err != nil {
		return nil, err
	}
	at, err := columnsOf(header)
	if err != nil {
		return nil, err
	}
	var jobs []*Job
	submitted := submits{}
	problems := problems{}
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err // it names the line
		}
		line, _ := rows.FieldPos(0)
		job := &Job{Line: line, Namespace: namespace, Name: "job-" + strconv.Itoa(line)}
		for i := range columns {
			if c := &columns[i]; c.field != nil && at[c.name] < len(row) && at[c.name] >= 0 && row[at[c.name]] != "" {
				*c.field(job) = row[at[c.name]]
			}
		}
		if err := submitted.add(row[at["submit"]]); err != nil {
			problems.add(line, fmt.Errorf("column submit: %w", err))
			continue
		}
		jobs = append(jobs, job)
	}
	if err := problems.err(); err != nil {
		return nil, err
	}
	if len(jobs) == 0 {
		return nil, errors.New("the trace has no jobs")
	}
	return jobs, submitted.set(jobs)
}

// columnsOf returns where each column is, or -1.
func columnsOf(header []string) (map[string]int, error) {
	at := map[string]int{}
	for i := range columns {
		at[columns[i].name] = slices.Index(header, columns[i].name)
		if columns[i].isRequired && at[columns[i].name] < 0 {
			return nil, fmt.Errorf("the first line has no column %s: it names the columns, such as %s", columns[i].name, strings.Join(Columns()[:4], ","))
		}
	}
	for i, name := range header {
		if !slices.Contains(Columns(), name) {
			return nil, fmt.Errorf("the first line has an unknown column %q: the columns are %s", name, strings.Join(Columns(), ", "))
		}
		if slices.Index(header, name) != i {
			return nil, fmt.Errorf("the first line has the column %s twice", name)
		}
	}
	return at, nil
}

// submits are the times in the column submit, which all are points in time or all count from the same begin.
type submits struct {
	after  []time.Duration
	points []time.Time
}

func (s *submits) add(text string) error {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		if s.points = append(s.points, at); len(s.after) > 0 {
			return fmt.Errorf("%q is a point in time, and earlier lines have durations", text)
		}
		return nil
	}
	d, err := duration(text)
	if err != nil {
		return fmt.Errorf("%w, or a point in time such as 2026-11-02T08:00:00Z", err)
	}
	if s.after = append(s.after, d); len(s.points) > 0 {
		return fmt.Errorf("%q is a duration, and earlier lines have points in time", text)
	}
	return nil
}

// maxSpan is how long after the first job another one may be submitted.
const maxSpan = 20 * 365 * 24 * time.Hour

func (s *submits) set(jobs []*Job) error {
	if len(s.points) > 0 {
		first := slices.MinFunc(s.points, time.Time.Compare)
		for _, at := range s.points {
			s.after = append(s.after, at.Sub(first))
		}
	}
	first := slices.Min(s.after)
	for i, job := range jobs {
		if job.Submit = s.after[i] - first; job.Submit > maxSpan {
			return fmt.Errorf("line %d: column submit: more than 20 years after the first job", job.Line)
		}
	}
	return nil
}

// duration reads seconds, or a duration such as 1h30m.
func duration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if _, isNumber := strconv.ParseFloat(text, 64); isNumber == nil {
		d, err = time.ParseDuration(text + "s")
	}
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q must be seconds, such as 90, or a duration such as 1h30m", text)
	}
	return d, nil
}

// perJob rewrites DURATION or JOB:DURATION, several with commas, as a scenario has them.
func perJob(text string) (string, error) {
	parts := strings.Split(text, ",")
	for i, part := range parts {
		job, value, isForOne := strings.Cut(part, ":")
		if !isForOne {
			job, value = "", part
		} else {
			job += ":"
		}
		d, err := duration(value)
		if err != nil {
			return "", err
		}
		parts[i] = job + d.Round(time.Second).String()
	}
	return strings.Join(parts, ","), nil
}

// begin is when the first job of a trace is submitted, on virtual time.
var begin = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// arrival returns the JobSet of a line.
func (j *Job) arrival() (*replay.Arrival, error) {
	s, err := j.submission()
	if err != nil {
		return nil, err
	}
	at := begin.Add(j.Submit).Truncate(time.Second) // objects have whole seconds
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: j.Namespace, Name: j.Name, UID: types.UID(j.Namespace + "/" + j.Name), CreationTimestamp: metav1.NewTime(at),
		Labels: map[string]string{apis.QueueLabel: j.Queue},
	}}
	if j.Class != "" {
		js.Labels[apis.PriorityClassLabel] = j.Class
	}
	if s.MaxSeconds != nil {
		js.Labels[apis.MaxExecTimeLabel] = strconv.Itoa(int(*s.MaxSeconds))
	}
	js.Spec = *s.Spec
	a := &replay.Arrival{At: at, JobSet: js, Jobs: map[replay.Job]replay.Course{}}
	for i := range js.Spec.ReplicatedJobs {
		name := js.Spec.ReplicatedJobs[i].Name
		run, isKnown := s.RunTime(name)
		if !isKnown {
			return nil, fmt.Errorf("column run: nothing is said about %s: write %s,%s:30m", name, j.Run, name)
		}
		ready, _ := s.ReadyAfter(name)
		a.Jobs[replay.Job{ReplicatedJob: name}] = replay.Course{Ready: min(ready, run), Run: run, GetsReady: true, Ends: true}
	}
	return a, nil
}

// submission reads a line as the line of a scenario that submits the same JobSet.
func (j *Job) submission() (*scenario.Submission, error) {
	words := []string{"submit", j.Name}
	for _, c := range []struct {
		column, field, value string
		read                 func(string) (string, error)
	}{
		{"namespace", "namespace", j.Namespace, nil},
		{"queue", "queue", j.Queue, nil},
		{"stages", "stages", j.stages(), nil},
		{"class", "class", j.Class, nil},
		{"run", "run", j.Run, perJob},
		{"ready", "ready-after", j.Ready, perJob},
		{"limit", "max-time", j.Limit, perJob},
	} {
		if c.value == "" {
			if c.column == "queue" || c.column == "stages" || c.column == "run" {
				return nil, fmt.Errorf("column %s is empty", c.column)
			}
			continue
		}
		value := c.value
		if c.read != nil {
			var err error
			if value, err = c.read(c.value); err != nil {
				return nil, fmt.Errorf("column %s: %w", c.column, err)
			}
		}
		words = append(words, c.field+"="+value)
	}
	for i, word := range words {
		if strings.ContainsFunc(word, func(r rune) bool { return r <= ' ' || r == '#' && i == 1 }) {
			return nil, fmt.Errorf("%q must have no blanks", word)
		}
	}
	script, err := scenario.Parse("# A line of a trace.\n" + strings.Join(words, " ") + "\n")
	if err != nil {
		if mistake, ok := errors.AsType[*scenario.Error](err); ok {
			err = mistake.Err
		}
		return nil, err
	}
	submit, _ := script.Lines[len(script.Lines)-1].Statement.(scenario.Submit)
	return submit.Submission, nil
}

// stages returns the stages with the name of the only ReplicatedJob, if it has none.
func (j *Job) stages() string {
	if j.Stages == "" || strings.ContainsAny(j.Stages, "()") {
		return j.Stages
	}
	return "main(" + j.Stages + ")"
}

// Write writes jobs as a trace.
func Write(w io.Writer, jobs []*Job) error {
	out := csv.NewWriter(w)
	if err := out.Write(Columns()); err != nil {
		return err
	}
	for _, job := range jobs {
		row := []string{strconv.FormatInt(int64(job.Submit/time.Second), 10)}
		for i := range columns {
			if columns[i].field != nil {
				row = append(row, *columns[i].field(job))
			}
		}
		if err := out.Write(row); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}
