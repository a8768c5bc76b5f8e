package loopback

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func protected(g *Guard) http.Handler {
	return g.Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Cookie") != "" && isAPI(r.URL.Path) {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
}

// do sends a request with changes, and returns the reply.
func do(h http.Handler, method, path string, change func(*http.Request)) *http.Response {
	r := httptest.NewRequest(method, path, nil)
	r.Host = "127.0.0.1:1234"
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func bearer(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

func TestOnlyASessionReadsTheAPI(t *testing.T) {
	token := NewToken()
	h := protected(New(token, "1234", false))
	for _, path := range []string{"/api/state", "/api", "//api/state", "/x/../api/state", "/./api/state"} {
		if code := do(h, "GET", "/", func(r *http.Request) {
			r.URL.Path = path
		}).StatusCode; code != http.StatusUnauthorized {
			t.Errorf("%s without a session: %d", path, code)
		}
	}
	if code := do(h, "GET", "/api.js", nil).StatusCode; code != http.StatusOK {
		t.Errorf("a file of the page without a session: %d", code)
	}
	for _, wrong := range []string{"", "x", token + "x", token[:42]} {
		if r := do(h, "GET", "/session", bearer(wrong)); r.StatusCode != http.StatusUnauthorized ||
			len(r.Cookies()) > 0 {
			t.Errorf("token %q: %d", wrong, r.StatusCode)
		}
	}
	if code := do(h, "POST", "/session", bearer(token)).StatusCode; code != http.StatusMethodNotAllowed {
		t.Errorf("POST /session: %d", code)
	}
	reply := do(h, "GET", "/session", bearer(token))
	if reply.StatusCode != http.StatusNoContent || len(reply.Cookies()) != 1 {
		t.Fatalf("exchange: %d, cookies %v", reply.StatusCode, reply.Cookies())
	}
	cookie := reply.Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Value == token {
		t.Errorf("cookie %v", cookie)
	}
	if code := do(h, "GET", "/api/state", func(r *http.Request) {
		r.AddCookie(cookie)
	}).StatusCode; code != http.StatusOK {
		t.Errorf("with a session, and without its cookie for the agent: %d", code)
	}
	cookie.Value = NewToken()
	if code := do(h, "GET", "/api/state", func(r *http.Request) {
		r.AddCookie(cookie)
	}).StatusCode; code != http.StatusUnauthorized {
		t.Errorf("with an invented session: %d", code)
	}
}

func TestAOneTimeTokenIsValidOnce(t *testing.T) {
	token := NewToken()
	h := protected(New(token, "1", true))
	if code := do(h, "GET", "/session", bearer(token)).StatusCode; code != http.StatusNoContent {
		t.Errorf("first use: %d", code)
	}
	if code := do(h, "GET", "/session", bearer(token)).StatusCode; code != http.StatusUnauthorized {
		t.Errorf("second use: %d", code)
	}
}

func TestNamesInHostAreRejected(t *testing.T) {
	h := protected(New(NewToken(), "1", true))
	for host, want := range map[string]int{
		"127.0.0.1:80": 200, "localhost:9": 200, "[::1]:80": 200, "localhost": 200, "127.8.0.1": 200,
		"attacker.example:80": 421, "127.0.0.1.attacker.example": 421, "10.0.0.1:80": 421, "": 421,
		"localhost.attacker.example:1": 421,
	} {
		if code := do(h, "GET", "/", func(r *http.Request) { r.Host = host }).StatusCode; code != want {
			t.Errorf("Host %q: %d, want %d", host, code, want)
		}
	}
}

func TestRequestsOfOtherPagesAreRejected(t *testing.T) {
	token := NewToken()
	h := protected(New(token, "1", false))
	for _, site := range []string{"cross-site", "same-site"} {
		for _, path := range []string{"/session", "/api/state"} {
			code := do(h, "GET", path, func(r *http.Request) {
				bearer(token)(r)
				r.Header.Set("Sec-Fetch-Site", site)
			}).StatusCode
			if code != http.StatusForbidden {
				t.Errorf("%s from %s: %d", path, site, code)
			}
		}
	}
}

func TestAddressMustBeLoopback(t *testing.T) {
	for address, valid := range map[string]bool{
		"127.0.0.1:9466": true, "[::1]:1": true, "localhost:0": true,
		"0.0.0.0:9466": false, ":9466": false, "10.0.0.1:1": false, "node:1": false, "127.0.0.1": false,
		"[fe80::1%lo]:1": false,
	} {
		if err := Address(address); (err == nil) != valid {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestTokensHave256RandomBits(t *testing.T) {
	a := NewToken()
	b := NewToken()
	if len(a) != 43 || a == b {
		t.Errorf("%q %q", a, b)
	}
}
