// Package barrier is the meeting point of a group: pods of a JobSet whose main containers start together. It has both ends of it: what a
// waiting pod does (Wait), and what answers it (Board and Server). It is no controller: who decides when a group may start is
// controllers/groupstart.
//
// A group has a ConfigMap, which every pod of it mounts. It says who may start, so the truth is in the API and nowhere else; kubelets bring
// it to the pods within a minute or two. A pod that wants to know at once asks the Server of any replica of the manager, which sees the
// ConfigMap change as soon as it does, and which never answers anything else than what the ConfigMap says.
//
//	pod                                        manager (any replica)
//	GET URL?signal&wait&nonce, MAC     ->      is the MAC made with the token of the group?
//	                                           wait until the ConfigMap lists the signal, or the time is over
//	{released, started, pods}, MAC     <-
//
// Both messages are authenticated with the token in the ConfigMap, which never travels itself. So nobody else learns it by listening, or can
// make a pod believe that it may start, and there are no certificates to be handed out. What can be overheard is how many pods of a group
// have started.
package barrier

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Keys of the ConfigMap of a group, and names of the files that the pods see.
const (
	// KeyEndpoint is the URL where the pods may ask. It is left out if there is none.
	KeyEndpoint = "endpoint"
	// KeyToken is the secret of the group.
	KeyToken = "token"
	// KeyPods is how many pods the group has.
	KeyPods = "pods"
	// KeyReleased lists the signals of those who may start, one a line.
	KeyReleased = "released"
	// KeyStarted is the file of KEP-498: it exists while every Job of the group may start. It names no attempt, so a kubelet that is late may
	// still show that of an earlier one. A barrier compares KeyReleased.
	KeyStarted = "started"
)

// Keys returns all of them.
func Keys() []string { return []string{KeyEndpoint, KeyToken, KeyPods, KeyReleased, KeyStarted} }

// Container is the name of the init container that waits.
const Container = "group-scheduling-init"

// ConfigMapName names the ConfigMap of the group of a JobSet.
func ConfigMapName(jobSet string) string { return jobSet + suffix }

const suffix = "-group-scheduling"

// groupOf is the group that a ConfigMap belongs to, by its name.
func groupOf(configMap types.NamespacedName) (group types.NamespacedName, ok bool) {
	configMap.Name, ok = strings.CutSuffix(configMap.Name, suffix)
	return configMap, ok
}

// Path is where the Server answers about a group.
func Path(group types.NamespacedName) string { return pathPrefix + group.Namespace + "/" + group.Name }

const pathPrefix = "/v1/groups/"

// Signal is what the pods of a Job wait for. A Job that is made anew has another UID, and one that is released again counts its releases:
// what is said to some pods never holds for those that take their place.
func Signal(job types.UID, release string) string { return string(job) + "." + release }

// A Notice is what the ConfigMap of a group says.
type Notice struct {
	// Endpoint is the URL where the pods may ask, or empty.
	Endpoint string
	// Token is the secret of the group. Nobody is told anything about a group without one.
	Token string
	// Pods is how many the group has.
	Pods int
	// Released has the signals of those who may start, sorted.
	Released []string
	// HasStarted is true while every Job of the group may start.
	HasStarted bool
}

// ReadNotice makes a Notice of the keys of a ConfigMap. Those that are not there are empty.
func ReadNotice(read func(key string) string) Notice {
	n := Notice{Endpoint: strings.TrimSpace(read(KeyEndpoint)), Token: strings.TrimSpace(read(KeyToken)), Released: strings.Fields(read(KeyReleased))}
	// Who writes nonsense into it is told nonsense.
	n.Pods, _ = strconv.Atoi(strings.TrimSpace(read(KeyPods)))
	slices.Sort(n.Released)
	n.HasStarted = read(KeyStarted) != ""
	return n
}

// Data is what to write into the ConfigMap.
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

// Releases tells whether those who wait for a signal may start.
func (n *Notice) Releases(signal string) bool {
	_, found := slices.BinarySearch(n.Released, signal)
	return found
}

// An Answer is what the Server says.
type Answer struct {
	// Released tells that who asks may start.
	Released bool `json:"released"`
	// Started is how many pods of the group have started, and Pods of how many. They are left out if Released.
	Started int `json:"started,omitempty"`
	Pods    int `json:"pods,omitempty"`
}

const (
	scheme       = "Tranche "
	answerHeader = "Tranche-Mac"
)

// sign authenticates what is said. The roles keep a question from being sent back as an answer.
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
