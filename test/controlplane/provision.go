package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// provision creates what the controllers need before they start.
func (p *ControlPlane) provision(ctx context.Context) error {
	var crds []*apiextensions.CustomResourceDefinition
	if p.config.Kueue != nil {
		var err error
		if crds, err = p.kueueCRDs(); err != nil {
			return err
		}
	}
	if paths := append(p.volcanoCRDs(), p.config.CRDs...); len(paths)+len(crds) > 0 {
		_, err := envtest.InstallCRDs(p.AdminConfig(), envtest.CRDInstallOptions{
			CRDs: crds, Paths: paths, ErrorIfPathMissing: true, MaxTime: startTimeout, PollInterval: pollInterval,
		})
		if err != nil {
			return fmt.Errorf("install CRDs: %w", err)
		}
	}
	admin, err := client.New(p.AdminConfig(), client.Options{})
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	if p.wants(JobSet) {
		if err := requireJobSetCRD(admin); err != nil {
			return err
		}
	}
	objects, err := p.kueueObjects()
	if err != nil {
		return err
	}
	objects = append(objects, &p.webhooks.mutating, &p.webhooks.validating)
	for user, elements := range map[string][]string{JobSetUser: {"jobset", "role.yaml"}, kwokUser: {"kwok", "role.yaml"}} {
		role := &rbacv1.ClusterRole{}
		if err := p.readManifest([]any{role}, elements...); err != nil {
			return err
		}
		role.Name = elements[0] + "-" + strings.TrimPrefix(role.Name, elements[0]+"-")
		objects = append(objects, role, bind(role.Name, user))
	}
	objects = append(append(objects, p.realNodeObjects()...), p.nodes()...)
	for _, object := range objects {
		// Data from an earlier start in the same work directory may have them already.
		if err := admin.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

func bind(role, user string) *rbacv1.ClusterRoleBinding {
	binding := &rbacv1.ClusterRoleBinding{
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	binding.Name = role
	return binding
}

func requireJobSetCRD(admin client.Client) error {
	kind := schema.GroupKind{Group: "jobset.x-k8s.io", Kind: "JobSet"}
	_, err := admin.RESTMapper().RESTMapping(kind, "v1alpha2")
	if meta.IsNoMatchError(err) {
		return errors.New("start jobset: there is no JobSet CRD: name it in Config.CRDs, or jobset in Config.Without")
	}
	if err != nil {
		return fmt.Errorf("look for the JobSet CRD: %w", err)
	}
	return nil
}
