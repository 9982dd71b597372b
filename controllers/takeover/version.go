package takeover

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/admission"
)

// Supported is the minor version of Kueue whose behaviour a takeover relies on.
const Supported = "v0.19."

// KueueVersion returns the version of Kueue's manager, by the image of its Deployment. It is empty if it is not known: without such a Deployment, or
// without the permission to list Deployments. The user is that of the manager, system:serviceaccount:NAMESPACE:NAME.
func KueueVersion(ctx context.Context, reader client.Reader, user string) (string, error) {
	parts := strings.Split(user, ":")
	if len(parts) != 4 {
		return "", nil
	}
	var deployments appsv1.DeploymentList
	if err := reader.List(ctx, &deployments, client.InNamespace(parts[2])); err != nil {
		if apierrors.IsForbidden(err) {
			return "", nil
		}
		return "", fmt.Errorf("list Deployments of namespace %s: %w", parts[2], err)
	}
	return versionIn(deployments.Items, parts[3]), nil
}

// versionIn returns the tag of Kueue's image in a Deployment that runs as a service account.
func versionIn(deployments []appsv1.Deployment, account string) string {
	version := ""
	for i := range deployments {
		pod := &deployments[i].Spec.Template.Spec
		if pod.ServiceAccountName != account {
			continue
		}
		for k := range pod.Containers {
			image := pod.Containers[k].Image
			if name, tag, found := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":"); found && strings.Contains(name, "kueue") {
				version, _, _ = strings.Cut(tag, "@")
			}
		}
	}
	return version
}

// VersionProblem returns why the version of Kueue's manager keeps a tree from being taken over, and the cure, or nothing. One that is not known does not.
func VersionProblem(version string) string {
	if version == "" || strings.HasPrefix(version, Supported) {
		return ""
	}
	return fmt.Sprintf("Kueue's manager has version %s: a takeover relies on what %sx does; install that version", version, Supported)
}

// blockUnlocked adds a problem to the obstacles of trees in which Kueue still admits. Those that are locked stay as they are.
func blockUnlocked(trees []admission.Takeover, locked []string, problem string) {
	if problem == "" {
		return
	}
	for i := range trees {
		first := trees[i].ClusterQueues[0]
		if slices.Contains(locked, first) || len(trees[i].Taken) > 0 {
			continue
		}
		trees[i].Obstacles[first] = append(trees[i].Obstacles[first], problem)
	}
}
