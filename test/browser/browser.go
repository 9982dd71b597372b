// Package browser drives a headless Chromium for tests, by the WebDriver protocol of its chromedriver. Both are Debian packages: `make browser`
// installs them.
package browser

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tranche-dev/tranche/test/controlplane"
)

const (
	readyEvery   = 50 * time.Millisecond
	readyTimeout = time.Minute
	// element is the key under which WebDriver has the identity of an element.
	element = "element-6066-11e4-a52e-4f735466cecf"
)

// Keys that have no character.
const (
	Tab       = "\uE004"
	Enter     = "\uE007"
	Escape    = "\uE00C"
	ArrowDown = "\uE015"
)

// A Browser is a running Chromium with one window.
type Browser struct {
	driver  *exec.Cmd
	url     string
	session string
}

// Start runs Chromium.
func Start(ctx context.Context) (*Browser, error) {
	for _, program := range []string{"chromium", "chromedriver"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("%w: `make browser` installs Chromium on Debian; elsewhere install chromium and chromedriver of the same version", err)
		}
	}
	port, err := controlplane.FreePort()
	if err != nil {
		return nil, err
	}
	b := &Browser{driver: exec.Command("chromedriver", "--port="+strconv.Itoa(port)), url: "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	b.driver.Stderr = os.Stderr
	b.driver.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := b.driver.Start(); err != nil {
		return nil, fmt.Errorf("start chromedriver: %w", err)
	}
	err = wait.PollUntilContextTimeout(ctx, readyEvery, readyTimeout, true, func(ctx context.Context) (bool, error) {
		return b.call(ctx, http.MethodGet, "/status", nil, nil) == nil, nil
	})
	if err == nil {
		err = b.open(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start Chromium: %w", err), b.kill())
	}
	return b, nil
}

// open makes a session with one window.
func (b *Browser) open(ctx context.Context) error {
	arguments := []string{
		"--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--hide-scrollbars", "--window-size=1400,900", "--force-device-scale-factor=1",
	}
	capabilities := map[string]any{"alwaysMatch": map[string]any{
		"browserName": "chrome", "acceptInsecureCerts": true, "goog:chromeOptions": map[string]any{"args": arguments}, "goog:loggingPrefs": map[string]any{"browser": "ALL"},
	}}
	var made struct {
		SessionID string `json:"sessionId"`
	}
	if err := b.call(ctx, http.MethodPost, "/session", map[string]any{"capabilities": capabilities}, &made); err != nil {
		return err
	}
	b.session = "/session/" + made.SessionID
	return nil
}

// Stop ends Chromium.
func (b *Browser) Stop(ctx context.Context) error {
	return errors.Join(b.call(ctx, http.MethodDelete, b.session, nil, nil), b.kill())
}

func (b *Browser) kill() error {
	if err := b.driver.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = b.driver.Wait() // it ends by the signal
	return nil
}

// Open shows a page, and waits until it is loaded.
func (b *Browser) Open(ctx context.Context, url string) error {
	return b.call(ctx, http.MethodPost, b.session+"/url", map[string]any{"url": url}, nil)
}

// Resize changes the size of the window.
func (b *Browser) Resize(ctx context.Context, width, height int) error {
	return b.call(ctx, http.MethodPost, b.session+"/window/rect", map[string]any{"width": width, "height": height}, nil)
}

// Run runs the body of a function in the page, and decodes what it returns into result unless that is nil.
func (b *Browser) Run(ctx context.Context, script string, result any) error {
	return b.call(ctx, http.MethodPost, b.session+"/execute/sync", map[string]any{"script": script, "args": []any{}}, result)
}

// Text returns the visible text of the page.
func (b *Browser) Text(ctx context.Context) (text string, err error) {
	return text, b.Run(ctx, "return document.body.innerText", &text)
}

// Type presses keys, wherever the focus is.
func (b *Browser) Type(ctx context.Context, keys string) error {
	var strokes []map[string]any
	for len(keys) > 0 {
		key, size := utf8.DecodeRuneInString(keys)
		keys = keys[size:]
		strokes = append(strokes, map[string]any{"type": "keyDown", "value": string(key)}, map[string]any{"type": "keyUp", "value": string(key)})
	}
	actions := []any{map[string]any{"type": "key", "id": "keyboard", "actions": strokes}}
	return b.call(ctx, http.MethodPost, b.session+"/actions", map[string]any{"actions": actions}, nil)
}

// Click clicks the first element of a CSS selector.
func (b *Browser) Click(ctx context.Context, selector string) error {
	var found map[string]string
	if err := b.call(ctx, http.MethodPost, b.session+"/element", map[string]any{"using": "css selector", "value": selector}, &found); err != nil {
		return fmt.Errorf("find %s: %w", selector, err)
	}
	return b.call(ctx, http.MethodPost, b.session+"/element/"+found[element]+"/click", map[string]any{}, nil)
}

// Screenshot returns the window as a PNG.
func (b *Browser) Screenshot(ctx context.Context) ([]byte, error) {
	var encoded string
	if err := b.call(ctx, http.MethodGet, b.session+"/screenshot", nil, &encoded); err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(encoded)
}

// Errors returns what the page has reported since the last call: exceptions, refused files, violations of its policy. Requests that Chromium has ended because the
// machine got another network interface are no errors of the page: the containers of other tests bring some.
func (b *Browser) Errors(ctx context.Context) ([]string, error) {
	var entries []struct{ Level, Message string }
	if err := b.call(ctx, http.MethodPost, b.session+"/se/log", map[string]any{"type": "browser"}, &entries); err != nil {
		return nil, err
	}
	var messages []string
	for _, entry := range entries {
		if strings.Contains(entry.Message, "net::ERR_NETWORK_CHANGED") {
			continue
		}
		if entry.Level == "SEVERE" || strings.Contains(entry.Message, "Content Security Policy") {
			messages = append(messages, entry.Message)
		}
	}
	return messages, nil
}

// call sends a command to chromedriver.
func (b *Browser) call(ctx context.Context, method, path string, body, result any) error {
	var content bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, b.url+path, &content)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	var answer struct{ Value json.RawMessage }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return fmt.Errorf("read the answer of chromedriver: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		var failure struct{ Error, Message string }
		_ = json.Unmarshal(answer.Value, &failure) // an answer of another form has no message
		return fmt.Errorf("chromedriver %s %s: %s: %s", method, path, failure.Error, failure.Message)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(answer.Value, result)
}
