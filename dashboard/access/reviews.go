package access

import (
	"context"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Limits of the requests to the API server. They are separate from those of the manager, whose requests never wait for the dashboard.
const (
	reviewQPS   = 200
	reviewBurst = 400
	reviewTime  = 10 * time.Second
)

// Connect sets the functions of a Config so that they ask an API server.
func (c *Config) Connect(config *rest.Config) error {
	own := rest.CopyConfig(config)
	own.QPS, own.Burst, own.RateLimiter = reviewQPS, reviewBurst, nil
	client, err := kubernetes.NewForConfig(own)
	if err != nil {
		return err
	}
	tokens, rights := client.AuthenticationV1().TokenReviews(), client.AuthorizationV1().SubjectAccessReviews()
	c.ReviewToken = func(ctx context.Context, token string) (*authenticationv1.UserInfo, error) {
		ctx, cancel := context.WithTimeout(ctx, reviewTime)
		defer cancel()
		review, err := tokens.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
		switch {
		case err != nil:
			return nil, err
		case !review.Status.Authenticated:
			return nil, nil //nolint:nilnil // a token of no user is no error
		}
		return &review.Status.User, nil
	}
	c.ReviewAccess = func(ctx context.Context, spec *authorizationv1.SubjectAccessReviewSpec) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, reviewTime)
		defer cancel()
		review, err := rights.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: *spec}, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		return review.Status.Allowed, nil
	}
	return nil
}
