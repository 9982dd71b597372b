package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/config/crd"
	"github.com/tranche-dev/tranche/config/policies"
	"github.com/tranche-dev/tranche/config/rbac"
	"github.com/tranche-dev/tranche/controllers/apiwatch"
	"github.com/tranche-dev/tranche/manifest"
)

func parseVersion(answer []byte) (*version.Info, error) {
	info := &version.Info{}
	return info, json.Unmarshal(answer, info)
}

// crds checks the CRDs. Beside Kueue those of queues are Kueue's.
func (e *examination) crds(ctx context.Context, c *check) error {
	wanted, err := manifests(crd.Files)
	if err != nil {
		return err
	}
	served := 0
	for _, want := range wanted {
		if want.GetKind() != "CustomResourceDefinition" {
			continue
		}
		isOfKueue := e.mode == configapi.ModeBeside && strings.HasSuffix(want.GetName(), ".kueue.x-k8s.io")
		got, err := e.get(ctx, want)
		switch {
		case err != nil:
			return err
		case got == nil && isOfKueue:
			c.fail("install Kueue 0.19 or later", "CustomResourceDefinition %s does not exist", want.GetName())
		case got == nil:
			c.fail("apply config/crd", "CustomResourceDefinition %s does not exist", want.GetName())
		case !isEstablished(got):
			c.fail("look at its conditions: kubectl describe crd "+want.GetName(), "CustomResourceDefinition %s is not served", want.GetName())
		default:
			served++
			if !isOfKueue {
				checkCRD(c, got, want)
			}
		}
	}
	c.fine = fmt.Sprintf("%d are served, with the fields of Tranche", served)
	return nil
}

// checkCRD compares a CRD that is served with that of this program.
func checkCRD(c *check, got, want *unstructured.Unstructured) {
	name := want.GetName()
	if missing := apiwatch.MissingFields(got); name == apiwatch.JobSetCRDName && len(missing) > 0 {
		c.fail("apply config/crd, or config/beside/crd, again: another CRD was applied over it", "CustomResourceDefinition %s lacks %s: the API server drops these fields", name, list(missing))
		return
	}
	if !contains(got.Object["spec"], want.Object["spec"]) {
		c.warn("apply config/crd again if this program has the version of the manager", "CustomResourceDefinition %s differs from that of this program", name)
	}
}

func isEstablished(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, condition := range conditions {
		if fields, ok := condition.(map[string]any); ok && fields["type"] == "Established" {
			return fields["status"] == "True"
		}
	}
	return false
}

// modeLabel is on the policies of one mode.
const modeLabel = "tranche.dev/mode"

// policies checks the admission policies, their bindings and their parameters.
func (e *examination) policies(ctx context.Context, c *check) error {
	wanted, err := manifests(policies.Files)
	if err != nil {
		return err
	}
	present, err := e.compare(ctx, c, "config/policies", wanted, func(want *unstructured.Unstructured) bool {
		of := want.GetLabels()[modeLabel]
		return want.GetKind() != "ConfigMap" && (of == "" || of == string(e.mode))
	})
	if err != nil {
		return err
	}
	c.fine = fmt.Sprintf("%s and bindings are as in this version", plural(present, "object")+" of policies")
	return e.parameters(ctx, c)
}

// parameters checks the ConfigMap that the policies have as parameter.
func (e *examination) parameters(ctx context.Context, c *check) error {
	var guards corev1.ConfigMap
	key := client.ObjectKey{Namespace: apis.SystemNamespace, Name: apis.GuardsConfigMap}
	switch err := e.client.Get(ctx, key, &guards); {
	case apierrors.IsNotFound(err):
		c.fail("apply config/policies/parameters.yaml with your values, or upgrade the chart again", "ConfigMap %s does not exist: the policies refuse every JobSet", key)
		return nil
	case err != nil:
		return fmt.Errorf("read ConfigMap %s: %w", key, err)
	}
	if err := policies.CheckLimits(guards.Data); err != nil {
		c.fail("correct it: the policies refuse every JobSet", "ConfigMap %s: %s", key, err)
	}
	if guards.Data["manager"] == "" {
		c.fail("set it to the user name of the manager", "data.manager of ConfigMap %s is empty: the manager can release nothing", key)
	}
	if isBeside := guards.Data["kueueManager"] != ""; isBeside != (e.mode == configapi.ModeBeside) {
		c.fail("install config/default or config/beside, not parts of both", "the mode is %s, but data.kueueManager of ConfigMap %s is %q", e.mode, key, guards.Data["kueueManager"])
	}
	return nil
}

// queueRole is the ClusterRole for what the manager writes to queues. It does not exist beside Kueue.
const queueRole = "tranche-manager-queues"

// roles checks the rights of the manager and the roles for users.
func (e *examination) roles(ctx context.Context, c *check) error {
	wanted, err := manifests(rbac.Files)
	if err != nil {
		return err
	}
	present, err := e.compare(ctx, c, "config/rbac", wanted, func(want *unstructured.Unstructured) bool {
		return e.mode != configapi.ModeBeside || want.GetName() != queueRole
	})
	c.fine = plural(present, "object") + " are as in this version"
	return err
}

// compare checks that objects are there and have what their manifests have, and returns how many are.
func (e *examination) compare(ctx context.Context, c *check, source string, wanted []*unstructured.Unstructured, applies func(*unstructured.Unstructured) bool) (present int, err error) {
	var missing, different []string
	for _, want := range wanted {
		if !applies(want) {
			continue
		}
		got, err := e.get(ctx, want)
		if err != nil {
			return present, err
		}
		switch name := want.GetKind() + " " + want.GetName(); {
		case got == nil:
			missing = append(missing, name)
		case differs(got, want):
			different = append(different, name)
		default:
			present++
		}
	}
	if len(missing) > 0 {
		c.fail("apply "+source+" again, or upgrade the chart", "%s missing: %s", plural(len(missing), "object"), list(missing))
	}
	if len(different) > 0 {
		c.warn("apply "+source+" again, or upgrade the chart, if this program has the version of the manager", "%s different from this version: %s", plural(len(different), "object"), list(different))
	}
	return present, nil
}

// get returns an object, or nil if it does not exist.
func (e *examination) get(ctx context.Context, like *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	got := &unstructured.Unstructured{}
	got.SetGroupVersionKind(like.GroupVersionKind())
	err := e.client.Get(ctx, client.ObjectKeyFromObject(like), got)
	switch {
	case apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err):
		return nil, nil //nolint:nilnil // it does not exist
	case err != nil:
		return nil, fmt.Errorf("read %s %s: %w", like.GetKind(), like.GetName(), err)
	}
	return got, nil
}

// manifests returns the objects of embedded files, without those that are for kustomize.
func manifests(files fs.FS) ([]*unstructured.Unstructured, error) {
	names, err := manifest.Files(files)
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		objects, unreadable := manifest.Read(name, text)
		if len(unreadable) > 0 {
			return nil, unreadable[0]
		}
		for _, object := range objects {
			content, err := object.Content()
			if err != nil {
				return nil, err
			}
			if object.GVK.Kind != "Kustomization" {
				all = append(all, &unstructured.Unstructured{Object: content})
			}
		}
	}
	return all, nil
}

// differs reports whether an object lacks something of its manifest, apart from metadata.
func differs(got, want *unstructured.Unstructured) bool {
	for field, value := range want.Object {
		if field != "metadata" && field != "apiVersion" && !contains(got.Object[field], value) {
			return true
		}
	}
	return false
}

// contains reports whether a value has all that another one has. The API server adds defaults, and leaves out what is empty.
func contains(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		fields, ok := got.(map[string]any)
		for name, value := range want {
			if !contains(fields[name], value) {
				return false
			}
		}
		return ok || len(want) == 0
	case []any:
		items, _ := got.([]any)
		if len(items) != len(want) {
			return false
		}
		for i := range want {
			if !contains(items[i], want[i]) {
				return false
			}
		}
		return true
	case nil:
		return true
	}
	return reflect.DeepEqual(got, want)
}
