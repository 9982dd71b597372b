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

// Limits of the requests to the API server. They are separate from those of the manager, whose requests never wait for the dashboard, and those of
// tokens from those of rights, so that signing in does not wait for the rights of others.
const (
	tokenQPS   = 100
	rightQPS   = 200
	reviewTime = 10 * time.Second
)

// Connect sets the functions of a Config so that they ask an API server.
func (c *Config) Connect(config *rest.Config) error {
	forTokens, err := limited(config, tokenQPS)
	if err != nil {
		return err
	}
	forRights, err := limited(config, rightQPS)
	if err != nil {
		return err
	}
	tokens, rights := forTokens.AuthenticationV1().TokenReviews(), forRights.AuthorizationV1().SubjectAccessReviews()
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

// limited returns a client with a limit of its own.
func limited(config *rest.Config, qps float32) (*kubernetes.Clientset, error) {
	own := rest.CopyConfig(config)
	own.QPS, own.Burst, own.RateLimiter = qps, int(2*qps), nil
	return kubernetes.NewForConfig(own)
}
