// Package barrier lets the pods of a group start together: pods of a JobSet whose main containers wait for each other. It implements both
// sides: the waiting pod (Wait), and the manager that answers it (NoticeStore and Server). It is no controller: controllers/groupstart decides
// when a group may start.
//
// A group has a ConfigMap, which each of its pods mounts. The ConfigMap lists which pods may start, so the API is the only source of truth;
// kubelets update the mounted files within a minute or two. A pod that needs the answer at once asks the Server of any replica of the
// manager, which watches the ConfigMap and answers only with its content.
//
//	pod                                        manager (any replica)
//	GET URL?signal&wait&nonce, MAC     ->      is the MAC made with the token of the group?
//	                                           wait until the ConfigMap lists the signal, or the time has expired
//	{released, started, pods}, MAC     <-
//
// Both messages are authenticated with the token in the ConfigMap, which is never sent. So a listener cannot learn the token or make a pod
// believe that it may start, and no certificates are needed. A listener can see how many pods of a group have started.
package barrier

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Keys of the ConfigMap of a group, and names of the files that the pods see.
const (
	// KeyEndpoint is the URL where the pods may ask. The key is missing if there is no such URL.
	KeyEndpoint = "endpoint"
	// KeyToken is the secret of the group.
	KeyToken = "token"
	// KeyPods is how many pods the group has.
	KeyPods = "pods"
	// KeyReleased lists the signals of the pods that may start, one per line.
	KeyReleased = "released"
	// KeyStarted is the file of KEP-498: it exists while every Job of the group may start. It names no attempt, so a late kubelet may still
	// show the file of an earlier attempt. A barrier therefore checks KeyReleased.
	KeyStarted = "started"
)

// Keys returns all keys.
func Keys() []string { return []string{KeyEndpoint, KeyToken, KeyPods, KeyReleased, KeyStarted} }

// Container is the name of the init container that waits.
const Container = "group-scheduling-init"

// ConfigMapName names the ConfigMap of the group of a JobSet.
func ConfigMapName(jobSet string) string { return jobSet + suffix }

const suffix = "-group-scheduling"

// groupOf returns the group that a ConfigMap belongs to, by its name.
func groupOf(configMap *corev1.ConfigMap) (group types.NamespacedName, ok bool) {
	name, ok := strings.CutSuffix(configMap.Name, suffix)
	return types.NamespacedName{Namespace: configMap.Namespace, Name: name}, ok
}

// Path returns the URL path at which the Server answers about a group.
func Path(group types.NamespacedName) string { return pathPrefix + group.Namespace + "/" + group.Name }

const pathPrefix = "/v1/groups/"

// Signal returns the signal that the pods of a Job wait for. A recreated Job has another UID, and a Job that is released again counts its
// releases: a signal never applies to the pods that replace those it was sent for.
func Signal(job types.UID, release string) string { return string(job) + "." + release }

// A Notice is the content of the ConfigMap of a group.
type Notice struct {
	// Endpoint is the URL where the pods may ask, or empty.
	Endpoint string
	// Token is the secret of the group. The Server answers no questions about a group without a token.
	Token string
	// Pods is how many pods the group has.
	Pods int
	// Released has the signals of the pods that may start, sorted.
	Released []string
	// HasStarted is true while every Job of the group may start.
	HasStarted bool
}

// ReadNotice parses the keys of a ConfigMap. Missing keys are empty.
func ReadNotice(read func(key string) string) Notice {
	n := Notice{Endpoint: strings.TrimSpace(read(KeyEndpoint)), Token: strings.TrimSpace(read(KeyToken)), Released: strings.Fields(read(KeyReleased))}
	// An invalid number gives an invalid count.
	n.Pods, _ = strconv.Atoi(strings.TrimSpace(read(KeyPods)))
	slices.Sort(n.Released)
	n.HasStarted = read(KeyStarted) != ""
	return n
}

// Data returns the content of the ConfigMap.
func (n *Notice) Data() map[string]string {
	data := map[string]string{KeyToken: n.Token, KeyPods: strconv.Itoa(n.Pods)}
	if n.Endpoint != "" {
		data[KeyEndpoint] = n.Endpoint
	}
	if len(n.Released) > 0 {
		data[KeyReleased] = strings.Join(n.Released, "\n") + "\n"
	}
	if n.HasStarted {
		data[KeyStarted] = "true\n"
	}
	return data
}

// Releases reports whether the pods that wait for a signal may start.
func (n *Notice) Releases(signal string) bool {
	_, found := slices.BinarySearch(n.Released, signal)
	return found
}

// An Answer is the response of the Server.
type Answer struct {
	// Released is true if the requesting pod may start.
	Released bool `json:"released"`
	// Started is how many pods of the group have started, and Pods of how many. They are left out if Released.
	Started int `json:"started,omitempty"`
	Pods    int `json:"pods,omitempty"`
}

const (
	scheme       = "Tranche "
	answerHeader = "Tranche-Mac"
)

// sign returns the MAC of a message. The role prevents that a question is sent back as an answer.
func sign(token, role, uri string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(token))
	for _, part := range []string{role, uri, string(body)} {
		mac.Write([]byte(strconv.Itoa(len(part)) + ":" + part))
	}
	return hex.EncodeToString(mac.Sum(nil))
}

func signQuestion(token, uri string) string { return sign(token, "question", uri, nil) }

func signAnswer(token, uri string, body []byte) string { return sign(token, "answer", uri, body) }

// isSigned compares in constant time.
func isSigned(got, want string) bool { return hmac.Equal([]byte(got), []byte(want)) }
