package access_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/tranche-dev/tranche/dashboard/access"
)

// reviewed answers reviews of tokens and of rights.
type reviewed struct{}

func (reviewed) RoundTrip(r *http.Request) (*http.Response, error) {
	body := `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`
	if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
		body = `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":true,"user":{"username":"ada"}}}`
	}
	return &http.Response{
		StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r,
	}, nil
}

// Tokens are reviewed at once, however many rights wait for their reviews.
func TestTokensDoNotWaitForRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var config access.Config
		if err := config.Connect(&rest.Config{Host: "https://api.example.com", Transport: reviewed{}}); err != nil {
			t.Fatal(err)
		}
		started := time.Now()
		for range 1000 {
			go func() {
				if allowed, err := config.ReviewAccess(t.Context(), &authorizationv1.SubjectAccessReviewSpec{User: "ada"}); !allowed || err != nil {
					t.Errorf("a right: %v, %v", allowed, err)
				}
			}()
		}
		synctest.Wait()
		if user, err := config.ReviewToken(t.Context(), "token"); err != nil || user.Username != "ada" {
			t.Errorf("a token: %v, %v", user, err)
		}
		if took := time.Since(started); took != 0 {
			t.Errorf("the token waits for %s", took)
		}
		time.Sleep(time.Minute)
	})
}
