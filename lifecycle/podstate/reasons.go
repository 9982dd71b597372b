package podstate

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// maxReasons is how many reasons are distinguished: some name their pod.
const maxReasons = 10

// Reasons collects why pods are not ready. The zero value is empty.
type Reasons struct {
	all   []*reason
	other int
}

// A reason is why some pods are not ready.
type reason struct {
	why string
	// name is the first name of the pods. example is one of them if only an Event may have more of the reason.
	name    string
	example *corev1.Pod
	pods    int
}

// Add adds a pod, and returns why it is not ready, as NotReady does. The Reasons keep one pod of each reason at most.
func (r *Reasons) Add(pod *corev1.Pod) (why string) {
	why, isKnown := NotReady(pod)
	if why == "" {
		return ""
	}
	for _, one := range r.all {
		if one.why == why {
			one.pods++
			one.name = min(one.name, pod.Name)
			return why
		}
	}
	if len(r.all) == maxReasons {
		r.other++
		return why
	}
	one := &reason{why: why, name: pod.Name, pods: 1}
	if !isKnown {
		one.example = pod.DeepCopy() // the pod is a part of a list
	}
	r.all = append(r.all, one)
	return why
}

// Sentences returns a sentence for each reason, with the number of pods and the name of one. warning returns the last Event of a pod that warns: it is asked
// about one pod of each reason that is not known from the pods alone.
func (r *Reasons) Sentences(warning func(pod *corev1.Pod) string) []string {
	var all []string
	for _, one := range r.all {
		why := one.why
		if one.example != nil {
			if text := warning(one.example); text != "" {
				why += ": " + text
			}
		}
		pods := "pod " + one.name
		if one.pods > 1 {
			pods = fmt.Sprintf("%d pods, such as %s", one.pods, one.name)
		}
		all = append(all, pods+": "+why)
	}
	if r.other > 0 {
		all = append(all, fmt.Sprintf("%d more pods are not ready, for other reasons", r.other))
	}
	return all
}

// maxAsked is how many Jobs are asked for an Event: one that has just been created has none yet.
const maxAsked = 3

// Lacking collects Jobs that lack pods. The zero value is empty.
type Lacking struct {
	asked []*batchv1.Job
	jobs  int
}

// Add adds a Job if it lacks pods.
func (l *Lacking) Add(job *batchv1.Job) {
	if lack(job) <= 0 {
		return
	}
	if l.jobs++; len(l.asked) < maxAsked {
		l.asked = append(l.asked, job.DeepCopy())
	}
}

// Sentences returns a sentence about the Jobs if the API server refuses their pods. warning returns the last Event of a Job about a pod that was refused.
func (l *Lacking) Sentences(warning func(job *batchv1.Job) string) []string {
	for _, job := range l.asked {
		switch why := warning(job); {
		case why == "":
		case l.jobs == 1:
			return []string{fmt.Sprintf("Job %s lacks pods: %s", job.Name, why)}
		default:
			return []string{fmt.Sprintf("%d Jobs, such as %s, lack pods: %s", l.jobs, job.Name, why)}
		}
	}
	return nil
}
