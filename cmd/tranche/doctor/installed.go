package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/cmd/tranche/parameters"
	besidepolicies "github.com/tranche-dev/tranche/config/beside/policies"
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
	wanted, err := manifest.Objects(crd.Files)
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

// policies checks the admission policies, their bindings and the values of their parameters.
func (e *examination) policies(ctx context.Context, c *check) error {
	wanted, err := e.wantedPolicies()
	if err != nil {
		return err
	}
	present, err := e.compare(ctx, c, "config/policies", wanted, func(*unstructured.Unstructured) bool { return true })
	if err != nil {
		return err
	}
	c.fine = fmt.Sprintf("%s and bindings are as in this version", plural(present, "object")+" of policies")
	if err := e.leftovers(ctx, c, wanted); err != nil {
		return err
	}
	return e.parameters(ctx, c)
}

// wantedPolicies returns the policies and bindings of the mode.
func (e *examination) wantedPolicies() ([]*unstructured.Unstructured, error) {
	wanted, err := manifest.Objects(policies.Files)
	if err != nil {
		return nil, err
	}
	if e.mode == configapi.ModeBeside {
		beside, err := manifest.Objects(besidepolicies.Files)
		if err != nil {
			return nil, err
		}
		wanted = append(wanted, beside...)
	}
	return slices.DeleteFunc(wanted, func(o *unstructured.Unstructured) bool {
		of := o.GetLabels()[parameters.ModeLabel]
		return o.GetKind() == "ConfigMap" || of != "" && of != string(e.mode)
	}), nil
}

// leftovers looks for policies and bindings of another version or mode: kubectl apply does not delete what a version no longer has.
func (e *examination) leftovers(ctx context.Context, c *check, wanted []*unstructured.Unstructured) error {
	isWanted := map[string]bool{}
	for _, object := range wanted {
		isWanted[object.GetKind()+"/"+object.GetName()] = true
	}
	if e.mode == configapi.ModeBeside { // of config/beside/crd
		isWanted["ValidatingAdmissionPolicy/tranche-keep-parameters"], isWanted["ValidatingAdmissionPolicyBinding/tranche-keep-parameters"] = true, true
	}
	var left []string
	for _, kind := range []string{"ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"} {
		found := &metav1.PartialObjectMetadataList{}
		found.SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind(kind + "List"))
		if err := e.client.List(ctx, found); err != nil {
			return fmt.Errorf("list the objects of kind %s: %w", kind, err)
		}
		for i := range found.Items {
			if name := found.Items[i].Name; strings.HasPrefix(name, "tranche-") && !isWanted[kind+"/"+name] {
				left = append(left, strings.ToLower(kind)+"/"+name)
			}
		}
	}
	if len(left) > 0 {
		c.warn("if this program has the version of the manager: kubectl delete "+strings.Join(left, " "),
			"%s of policies or bindings are not part of this version in the mode %s, and still apply", plural(len(left), "object"), e.mode)
	}
	return nil
}

// parameters checks the values in the policies. Policies that are missing have been reported.
func (e *examination) parameters(ctx context.Context, c *check) error {
	values, err := parameters.Read(ctx, e.client, e.mode)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil && apierrors.ReasonForError(err) != metav1.StatusReasonUnknown:
		return err
	case err != nil:
		c.fail("render and apply config/policies again, or upgrade the chart", "%s", err)
		return nil
	}
	if err := policies.CheckLimits(values); err != nil {
		c.fail("correct it: the policies refuse every JobSet", "%s", err)
	}
	if values["manager"] == "" {
		c.fail("set it to the user name of the manager", "the parameter manager of the admission policies is empty: the manager can release nothing")
	}
	if isBeside := values["kueueManager"] != ""; isBeside != (e.mode == configapi.ModeBeside) {
		c.fail("install config/default or config/beside, not parts of both", "the mode is %s, but the parameter kueueManager of the admission policies is %q", e.mode, values["kueueManager"])
	}
	return nil
}

// queueRole is the ClusterRole for what the manager writes to queues. It does not exist beside Kueue.
const queueRole = "tranche-manager-queues"

// roles checks the rights of the manager and the roles for users.
func (e *examination) roles(ctx context.Context, c *check) error {
	wanted, err := manifest.Objects(rbac.Files)
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
		case differs(got, withValues(want, got)):
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

// withValues returns the manifest of a policy with the values of the parameters that another one has.
func withValues(want, got *unstructured.Unstructured) *unstructured.Unstructured {
	policies.SetConstants(want, policies.Constants(got))
	return want
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
