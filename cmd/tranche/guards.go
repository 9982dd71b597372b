package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/config/policies"
	"github.com/tranche-dev/tranche/controllers/groupstart/barrier"
)

// checkGuards checks that the admission policies recognize this manager. Otherwise they would turn each of its releases into a no-op,
// without an error. It returns the container that the policies add to pods of groups, or nil if they add none.
func checkGuards(ctx context.Context, restConfig *rest.Config, config *configapi.Configuration) (*corev1.Container, error) {
	c, err := client.New(restConfig, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	var guards corev1.ConfigMap
	key := client.ObjectKey{Namespace: apis.SystemNamespace, Name: apis.GuardsConfigMap}
	if err := c.Get(ctx, key, &guards); err != nil {
		return nil, fmt.Errorf("read ConfigMap %s with the parameters of the admission policies: %w; install config/policies first", key, err)
	}
	var review authenticationv1.SelfSubjectReview
	if err := c.Create(ctx, &review); err != nil {
		return nil, fmt.Errorf("ask the API server for the user name of the manager: %w", err)
	}
	if self := review.Status.UserInfo.Username; guards.Data["manager"] != self {
		return nil, fmt.Errorf("data.manager of ConfigMap %s is %q, but this manager runs as user %q: change data.manager, or run the manager as the user that it names",
			key, guards.Data["manager"], self)
	}
	if held := guards.Data["manageJobSetsWithoutQueueName"] == "true"; held != *config.ManageJobSetsWithoutQueueName {
		return nil, fmt.Errorf("manageJobSetsWithoutQueueName is %t in the configuration, but %t in ConfigMap %s: make them equal",
			*config.ManageJobSetsWithoutQueueName, held, key)
	}
	if err := checkKueueManager(&guards, config.Mode); err != nil {
		return nil, err
	}
	if err := checkMode(ctx, c, config.Mode, guards.Data["kueueManager"]); err != nil {
		return nil, err
	}
	lock := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: apis.SystemNamespace, Name: apis.TakeoverConfigMap}}
	if err := c.Get(ctx, client.ObjectKeyFromObject(&lock), &lock); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", apis.TakeoverConfigMap, err)
	}
	if err := checkTakeovers(&lock, config.Mode); err != nil {
		return nil, err
	}
	// The pods name gangs because of the policies, and the manager creates the objects that they name.
	if err := checkGangs(&guards, &config.Gang); err != nil {
		return nil, err
	}
	if err := checkAccelerators(&guards, config.CoStart.Accelerators); err != nil {
		return nil, err
	}
	if err := policies.CheckLimits(guards.Data); err != nil {
		return nil, fmt.Errorf("read ConfigMap %s with the parameters of the admission policies: %w", key, err)
	}
	waiting, err := waitingContainer(guards.Data)
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s with the parameters of the admission policies: %w", key, err)
	}
	return waiting, nil
}

// checkKueueManager checks that the policies are those of the mode: beside Kueue they let its manager do what they refuse otherwise.
func checkKueueManager(guards *corev1.ConfigMap, mode configapi.Mode) error {
	key, named := client.ObjectKeyFromObject(guards), guards.Data["kueueManager"]
	switch {
	case mode == configapi.ModeBeside && named == "":
		return fmt.Errorf("mode is %s in the configuration, but data.kueueManager of ConfigMap %s is empty: install config/beside, or set it to the user name of Kueue's manager", mode, key)
	case mode != configapi.ModeBeside && named != "":
		return fmt.Errorf("mode is %s in the configuration, but data.kueueManager of ConfigMap %s is %q: install config/default, or set mode to Beside", mode, key, named)
	}
	return nil
}

// checkTakeovers checks that no cohort tree is taken over from Kueue outside the mode Beside: policies that may still be installed keep everyone from
// admitting in all other trees, and nothing removes the lock.
func checkTakeovers(lock *corev1.ConfigMap, mode configapi.Mode) error {
	var taken []string
	for key := range lock.Data {
		if name, isQueue := strings.CutPrefix(key, "queue."); isQueue {
			taken = append(taken, name)
		}
	}
	if mode == configapi.ModeBeside || len(taken) == 0 {
		return nil
	}
	slices.Sort(taken)
	return fmt.Errorf("mode is %s in the configuration, but ConfigMap %s has cohort trees that were taken over from Kueue: set mode to Beside with config/beside, and run tranche hand-back %s; "+
		"or, if Kueue's manager is gone for good, delete this ConfigMap", mode, client.ObjectKeyFromObject(lock), strings.Join(taken, " "))
}

// waitingContainer returns the init container that the policies add to the pods of groups, with the fields that affect its charge, or nil.
func waitingContainer(data map[string]string) (*corev1.Container, error) {
	if data["groupStartImage"] == "" {
		return nil, nil //nolint:nilnil // group start is turned off
	}
	amounts := corev1.ResourceList{}
	for name, key := range map[corev1.ResourceName]string{corev1.ResourceCPU: "groupStartCPU", corev1.ResourceMemory: "groupStartMemory"} {
		if data[key] == "" {
			continue
		}
		quantity, err := resource.ParseQuantity(data[key])
		if err != nil || quantity.Sign() < 0 {
			return nil, fmt.Errorf("data.%s is %q, must be a quantity such as 16Mi, or empty", key, data[key])
		}
		amounts[name] = quantity
	}
	return &corev1.Container{Name: barrier.Container, Image: data["groupStartImage"], Resources: corev1.ResourceRequirements{Requests: amounts, Limits: amounts}}, nil
}

// checkAccelerators checks that the policies and the manager count the same resources as accelerators, in any order: otherwise pods could hold some without
// a queue where one is required, or would be refused for others.
func checkAccelerators(guards *corev1.ConfigMap, counted []corev1.ResourceName) error {
	named := strings.FieldsFunc(guards.Data["accelerators"], func(r rune) bool { return r == '\n' })
	wanted := make([]string, len(counted))
	for i, name := range counted {
		wanted[i] = string(name)
	}
	slices.Sort(named)
	slices.Sort(wanted)
	if !slices.Equal(slices.Compact(named), slices.Compact(wanted)) {
		return fmt.Errorf("coStart.accelerators is %q in the configuration, but accelerators is %q in ConfigMap %s: make them equal",
			wanted, named, client.ObjectKeyFromObject(guards))
	}
	return nil
}

// checkGangs checks that the pods of gangs use the scheduler for which the manager creates gang objects: the policies prepare the Jobs.
func checkGangs(guards *corev1.ConfigMap, gangs *configapi.Gang) error {
	key := client.ObjectKeyFromObject(guards)
	if named := cmp.Or(guards.Data["gangProvider"], string(configapi.GangProviderNone)); named != string(gangs.Provider) {
		return fmt.Errorf("gang.provider is %s in the configuration, but gangProvider is %q in ConfigMap %s: make them equal", gangs.Provider, named, key)
	}
	byDefault := configapi.Configuration{}
	byDefault.SetDefaults()
	wanted := gangs.SchedulerName(gangs.Provider)
	if named := cmp.Or(guards.Data["gangSchedulerName"], byDefault.Gang.SchedulerName(gangs.Provider)); named != wanted {
		return fmt.Errorf("the schedulerName of %s is %q in the configuration, but gangSchedulerName is %q in ConfigMap %s: make them equal",
			gangs.Provider, wanted, named, key)
	}
	return nil
}
