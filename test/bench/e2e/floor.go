package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/test/bench/e2e/shape"
)

const (
	// floorNamespace has no LocalQueue, so that no manager admits its quota Workloads.
	floorNamespace = "floor"
	// lives is how many are measured, and warmUp how many come before them.
	lives       = 600
	warmUp      = 100
	parallelism = 32
)

// A floor is the time that the machine needs for one life of a quota Workload, its creation, admission and end, without other work.
type floor struct {
	wall time.Duration
	// apiserver and all are processor time, of the API server alone and together with etcd and the driver.
	apiserver, all time.Duration
}

// sound runs lives at full rate and returns the time of one of them. It deletes all its objects.
func (r *run) sound(ctx context.Context) (floor, error) {
	if err := r.world.CreateNamespace(ctx, floorNamespace, nil); err != nil {
		return floor{}, fmt.Errorf("create namespace %s: %w", floorNamespace, err)
	}
	if err := r.live(ctx, "warm-up", warmUp); err != nil {
		return floor{}, err
	}
	before, err := r.readServers()
	if err != nil {
		return floor{}, err
	}
	began := time.Now()
	if err := r.live(ctx, "life", lives); err != nil {
		return floor{}, err
	}
	wall := time.Since(began)
	after, err := r.readServers()
	if err != nil {
		return floor{}, err
	}
	if err := r.world.Admin.DeleteAllOf(ctx, &kueue.Workload{}, client.InNamespace(floorNamespace)); err != nil {
		return floor{}, fmt.Errorf("delete quota Workloads of namespace %s: %w", floorNamespace, err)
	}
	return floor{wall: wall / lives, apiserver: (after.apiserver.cpu - before.apiserver.cpu) / lives, all: after.since(&before) / lives}, nil
}

// live creates, admits and finishes quota Workloads, several at a time and each write as soon as the one before is done.
func (r *run) live(ctx context.Context, prefix string, n int) error {
	class := &shape.Class{CPU: resource.MustParse("1"), Runs: metav1.Duration{Duration: time.Second}}
	return inParallel(n, func(i int) error { return r.liveOnce(ctx, fmt.Sprintf("%s-%d", prefix, i), class) })
}

func (r *run) liveOnce(ctx context.Context, name string, class *shape.Class) error {
	key := types.NamespacedName{Namespace: floorNamespace, Name: name}
	if err := r.api.create(ctx, quotaWorkload(key.Namespace, key.Name, localQueueName(0), class)); err != nil {
		return err
	}
	if err := r.api.apply(ctx, key, "", admissionManager, admission(floorNamespace, class.CPU)); err != nil {
		return err
	}
	return r.api.apply(ctx, key, "", finishManager, outcome())
}
