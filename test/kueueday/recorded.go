package kueueday

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Recorded returns a day of 8 hours on 20 GPUs: 36 JobSets that prepare data, train and evaluate, that start workers when their parameter servers are
// ready, or that have one stage. It is the same each time.
func Recorded() *Day {
	random := rand.New(rand.NewPCG(15, 33))
	minutes := func(from, to int) time.Duration {
		return time.Duration(from*60+random.IntN((to-from)*60)) * time.Second
	}
	day := &Day{Begin: time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC), GPUs: 20}
	at := time.Duration(0)
	for i := range 36 {
		at += minutes(3, 22)
		var job Job
		switch i % 3 {
		case 0:
			job = Job{Name: fmt.Sprintf("fine-tune-%02d", i), Stages: []Stage{
				{Name: "prepare", Pods: 1, Ready: 20 * time.Second, Run: minutes(8, 30)},
				{Name: "train", Pods: 8, Ready: 90 * time.Second, Run: minutes(20, 60)},
				{Name: "evaluate", Pods: 2, Ready: 30 * time.Second, Run: minutes(5, 15)},
			}}
		case 1:
			job = Job{Name: fmt.Sprintf("embed-%02d", i), Stages: []Stage{
				{Name: "servers", Pods: 4, Ready: minutes(1, 6), Run: 0},
				{Name: "workers", Pods: 5, Ready: time.Minute, Run: minutes(15, 40), AfterReady: true},
			}}
			// The servers end soon after their workers.
			job.Stages[0].Run = job.Stages[0].Ready + job.Stages[1].Run + 10*time.Second
		case 2:
			job = Job{Name: fmt.Sprintf("notebook-%02d", i), Stages: []Stage{{Name: "main", Pods: 2, Ready: 15 * time.Second, Run: minutes(10, 50)}}}
		}
		job.At = at
		day.Jobs = append(day.Jobs, job)
	}
	return day
}
