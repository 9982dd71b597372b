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
	"github.com/tranche-dev/tranche/cmd/tranche/parameters"
	"github.com/tranche-dev/tranche/config/policies"
	"github.com/tranche-dev/tranche/controllers/groupstart/barrier"
)

// guards are what the manager knows about the admission policies.
type guards struct {
	// manager and kueueManager are the user names of both managers. Where Tranche admits, the second is empty.
	manager, kueueManager string
	// waiting is the container that the policies add to pods of groups, or nil if they add none.
	waiting *corev1.Container
}

// checkGuards checks that the admission policies recognize this manager. Otherwise they would turn each of its releases into a no-op,
// without an error.
func checkGuards(ctx context.Context, restConfig *rest.Config, config *configapi.Configuration) (*guards, error) {
	c, err := client.New(restConfig, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	values, err := parameters.Read(ctx, c, config.Mode)
	if err != nil {
		return nil, fmt.Errorf("read the parameters of the admission policies: %w", err)
	}
	var review authenticationv1.SelfSubjectReview
	if err := c.Create(ctx, &review); err != nil {
		return nil, fmt.Errorf("ask the API server for the user name of the manager: %w", err)
	}
	if self := review.Status.UserInfo.Username; values["manager"] != self {
		return nil, fmt.Errorf("the parameter manager of the admission policies is %q, but this manager runs as user %q: change the parameter, or run the manager as the user that it names",
			values["manager"], self)
	}
	if held := values["manageJobSetsWithoutQueueName"] == "true"; held != *config.ManageJobSetsWithoutQueueName {
		return nil, fmt.Errorf("manageJobSetsWithoutQueueName is %t in the configuration, but %t in the parameters of the admission policies: make them equal",
			*config.ManageJobSetsWithoutQueueName, held)
	}
	if err := checkKueueManager(values["kueueManager"], config.Mode); err != nil {
		return nil, err
	}
	if err := checkMode(ctx, c, config.Mode, values["kueueManager"]); err != nil {
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
	if err := checkGangs(values, &config.Gang); err != nil {
		return nil, err
	}
	if err := checkAccelerators(values["accelerators"], config.CoStart.Accelerators); err != nil {
		return nil, err
	}
	if err := policies.CheckLimits(values); err != nil {
		return nil, err
	}
	waiting, err := waitingContainer(values)
	return &guards{manager: values["manager"], kueueManager: values["kueueManager"], waiting: waiting}, err
}

// checkKueueManager checks that the policies are those of the mode: beside Kueue they let its manager do what they refuse otherwise.
func checkKueueManager(named string, mode configapi.Mode) error {
	switch {
	case mode == configapi.ModeBeside && named == "":
		return fmt.Errorf("mode is %s in the configuration, but the parameter kueueManager of the admission policies is empty: install config/beside, or set it to the user name of Kueue's manager", mode)
	case mode != configapi.ModeBeside && named != "":
		return fmt.Errorf("mode is %s in the configuration, but the parameter kueueManager of the admission policies is %q: install config/default, or set mode to Beside", mode, named)
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
			return nil, fmt.Errorf("the parameter %s of the admission policies is %q, must be a quantity such as 16Mi, or empty", key, data[key])
		}
		amounts[name] = quantity
	}
	return &corev1.Container{Name: barrier.Container, Image: data["groupStartImage"], Resources: corev1.ResourceRequirements{Requests: amounts, Limits: amounts}}, nil
}

// checkAccelerators checks that the policies and the manager count the same resources as accelerators, in any order: otherwise pods could hold some without
// a queue where one is required, or would be refused for others.
func checkAccelerators(parameter string, counted []corev1.ResourceName) error {
	named := strings.FieldsFunc(parameter, func(r rune) bool { return r == '\n' })
	wanted := make([]string, len(counted))
	for i, name := range counted {
		wanted[i] = string(name)
	}
	slices.Sort(named)
	slices.Sort(wanted)
	if !slices.Equal(slices.Compact(named), slices.Compact(wanted)) {
		return fmt.Errorf("coStart.accelerators is %q in the configuration, but the parameter accelerators of the admission policies is %q: make them equal", wanted, named)
	}
	return nil
}

// checkGangs checks that the pods of gangs use the scheduler for which the manager creates gang objects: the policies prepare the Jobs.
func checkGangs(values map[string]string, gangs *configapi.Gang) error {
	if named := cmp.Or(values["gangProvider"], string(configapi.GangProviderNone)); named != string(gangs.Provider) {
		return fmt.Errorf("gang.provider is %s in the configuration, but the parameter gangProvider of the admission policies is %q: make them equal", gangs.Provider, named)
	}
	byDefault := configapi.Configuration{}
	byDefault.SetDefaults()
	wanted := gangs.SchedulerName(gangs.Provider)
	if named := cmp.Or(values["gangSchedulerName"], byDefault.Gang.SchedulerName(gangs.Provider)); named != wanted {
		return fmt.Errorf("the schedulerName of %s is %q in the configuration, but the parameter gangSchedulerName of the admission policies is %q: make them equal",
			gangs.Provider, wanted, named)
	}
	return nil
}
