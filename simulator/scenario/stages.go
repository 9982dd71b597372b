package scenario

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// A planner collects the ReplicatedJobs of one submission.
type planner struct {
	// pod has the container of each pod, without its requests.
	pod     corev1.PodSpec
	startup *jobsetapi.StartupPolicy
	// sizes are the numbers of pods that differ from those in the text.
	sizes map[string]int32
	// replicas are the numbers of Jobs.
	replicas perJob[int32]
	jobs     []jobsetapi.ReplicatedJob
}

// readStages reads ps(gpu=2)=Ready=>train(gpu=6): chains of ReplicatedJobs, with + between those that start together and a semicolon
// between chains. A later reference to a ReplicatedJob is its name alone.
func (p *planner) readStages(text string) (*stageplan.Plan, error) {
	for chain := range strings.SplitSeq(text, ";") {
		if err := p.chain(chain); err != nil {
			return nil, err
		}
	}
	return p.plan()
}

func (p *planner) plan() (*stageplan.Plan, error) {
	plan, err := stageplan.New(&jobsetapi.JobSetSpec{ReplicatedJobs: p.jobs, StartupPolicy: p.startup})
	if err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return plan, nil
}

func (p *planner) chain(text string) error {
	links := strings.Split(text, "=>")
	var before []string
	var status jobset.DependsOnStatus
	for i, link := range links {
		next := jobset.DependsOnStatus("")
		if i < len(links)-1 {
			at := strings.LastIndex(link, "=")
			if at < 0 {
				return fmt.Errorf("%q must end with =Ready=> or =Succeeded=> before the next stage", link)
			}
			word, err := oneOf[jobsetapi.ReplicatedJobsStatus](link[at+1:], "Ready|Succeeded")
			if err != nil {
				return fmt.Errorf("what to wait for: %w", err)
			}
			link, next = link[:at], jobset.DependencyReady
			if word == jobsetapi.SucceededStatus {
				next = jobset.DependencyComplete
			}
		}
		group, err := p.group(link, before, status)
		if err != nil {
			return err
		}
		before, status = group, next
	}
	return nil
}

// group reads ReplicatedJobs with + between them, all of which wait for the previous ones.
func (p *planner) group(text string, before []string, status jobset.DependsOnStatus) ([]string, error) {
	var group []string
	for word := range strings.SplitSeq(text, "+") {
		i, err := p.job(word)
		if err != nil {
			return nil, err
		}
		for _, name := range before {
			p.jobs[i].DependsOn = append(p.jobs[i].DependsOn, jobset.DependsOn{Name: name, Status: status})
		}
		group = append(group, p.jobs[i].Name)
	}
	return group, nil
}

// job returns the index of a ReplicatedJob, a new one if the word has brackets.
func (p *planner) job(word string) (int, error) {
	name, body, isNew := strings.Cut(word, "(")
	known := slices.IndexFunc(p.jobs, func(j jobsetapi.ReplicatedJob) bool { return j.Name == name })
	switch {
	case !isNew && known < 0:
		return 0, fmt.Errorf("%q asks for nothing: write %s(gpu=2) where it comes first", word, name)
	case !isNew:
		return known, nil
	case known >= 0:
		return 0, fmt.Errorf("%q is there twice: name it alone, without brackets, where it comes again", name)
	}
	body, closed := strings.CutSuffix(body, ")")
	if !closed {
		return 0, fmt.Errorf("%q has no closing bracket", word)
	}
	return p.add(name, body, "=")
}

// add makes a ReplicatedJob of [COUNT*]RESOURCE=AMOUNT,... with the given sign between resource and amount.
func (p *planner) add(name, body, sign string) (int, error) {
	pods := int32(1)
	if number, rest, hasCount := strings.Cut(body, "*"); hasCount {
		n, err := count(number)
		if err != nil {
			return 0, err
		}
		pods, body = n, rest
	}
	if size, isResized := p.sizes[name]; isResized {
		pods = size
	}
	requests := corev1.ResourceList{}
	if body != "" {
		var err error
		if requests, err = amounts(body, sign); err != nil {
			return 0, err
		}
	}
	job := jobsetapi.ReplicatedJob{}
	job.Name, job.Replicas = name, 1
	if n, ok := p.replicas.of(name); ok {
		job.Replicas = n
	}
	template := corev1.PodTemplateSpec{Spec: *p.pod.DeepCopy()}
	template.Spec.Containers[0].Resources.Requests = maps.Clone(requests)
	job.Template = batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
		Parallelism: &pods, Completions: &pods, CompletionMode: new(batchv1.IndexedCompletion), Template: template,
	}}
	p.jobs = append(p.jobs, job)
	return len(p.jobs) - 1, nil
}

// readPods reads 3*gpu:2,cpu:1 for a job with one pod set, or driver(cpu=4)+worker(3*gpu=2) for one with several.
func (p *planner) readPods(text string) (*stageplan.Plan, error) {
	if !strings.Contains(text, "(") {
		if _, err := p.add("main", text, ":"); err != nil {
			return nil, err
		}
		return p.plan()
	}
	if strings.Contains(text, "=>") {
		return nil, errors.New("pod sets start together: write stages instead of pods for what waits")
	}
	if _, err := p.group(text, nil, ""); err != nil {
		return nil, err
	}
	return p.plan()
}
