// Package loopback protects an HTTP server on loopback TCP against the other users of the node and against foreign web
// pages: a token, a session cookie, and checks of the headers Host and Sec-Fetch-Site.
package loopback

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path"
	"strings"
	"sync"
)

// tokenBytes is the size of tokens and sessions: 256 bits.
const tokenBytes = 32

// maxSessions limits the sessions of a guard: a new session ends the oldest one.
const maxSessions = 16

// NewToken returns a random token, which can be part of a URL.
func NewToken() string {
	b := make([]byte, tokenBytes)
	_, _ = rand.Read(b) // crypto/rand never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// Address validates the address of a listener: HOST:PORT, where HOST is a loopback address or localhost.
func Address(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q must be ADDRESS:PORT, such as 127.0.0.1:9466: %w", address, err)
	}
	if !isLoopback(host) {
		return fmt.Errorf("%q is not a loopback address; listen on 127.0.0.1 and forward the port with ssh -L", address)
	}
	return nil
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback() && ip.Zone() == ""
}

// Guard protects a handler. A client exchanges the token for a session with GET /session and the header Authorization.
// The session is a cookie that scripts cannot read. Its methods are safe for concurrent use.
type Guard struct {
	cookie string
	once   bool

	mu       sync.Mutex
	token    [sha256.Size]byte
	used     bool
	sessions [][sha256.Size]byte // oldest first
}

// New returns a guard with a token. With once, the token is valid for one exchange. The cookie's name has a suffix,
// because browsers send a cookie to all ports of a host.
func New(token, suffix string, once bool) *Guard {
	return &Guard{cookie: "weft-ui-" + suffix, once: once, token: sha256.Sum256([]byte(token))}
}

// Protect returns a handler that serves paths below /api only to clients with a session. All other paths must contain
// nothing about the node: every client with a valid Host may read them.
func (g *Guard) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !hasLoopbackHost(r):
			http.Error(w, "the header Host is not a loopback address: open the URL that was printed",
				http.StatusMisdirectedRequest)
		case isForeign(r):
			http.Error(w, "the request comes from another web page", http.StatusForbidden)
		case r.URL.Path == "/session":
			g.exchange(w, r)
		case isAPI(r.URL.Path) && !g.hasSession(r):
			http.Error(w, "no session: open the URL with the token that was printed", http.StatusUnauthorized)
		default:
			r.Header.Del("Cookie")
			next.ServeHTTP(w, r)
		}
	})
}

// hasLoopbackHost rejects names that an attacker's DNS server points to a loopback address. The port may differ: ssh -L
// changes it.
func hasLoopbackHost(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = strings.Trim(r.Host, "[]")
	}
	return isLoopback(host)
}

// isForeign reports whether another origin's page sent the request. Navigation by the user has the value none.
func isForeign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return false
	}
	return r.URL.Path == "/session" || isAPI(r.URL.Path)
}

// isAPI also covers paths that a server would clean.
func isAPI(name string) bool {
	return strings.HasPrefix(path.Clean("/"+name)+"/", "/api/")
}

// exchange creates a session for the token.
func (g *Guard) exchange(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "only GET is allowed", http.StatusMethodNotAllowed)
		return
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	session := NewToken()
	if !ok || !g.admit(token, session) {
		http.Error(w, "the token is wrong or was already used: run weftctl ui again", http.StatusUnauthorized)
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name:     g.cookie,
		Value:    session,
		Path:     "/",
		HttpOnly: true,
		SameSite: http.SameSiteStrictMode,
	})
	w.WriteHeader(http.StatusNoContent)
}

// admit records a session if the token is valid.
func (g *Guard) admit(token, session string) bool {
	sum := sha256.Sum256([]byte(token))
	g.mu.Lock()
	defer g.mu.Unlock()
	if subtle.ConstantTimeCompare(sum[:], g.token[:]) != 1 || (g.once && g.used) {
		return false
	}
	g.used = true
	if len(g.sessions) == maxSessions {
		g.sessions = g.sessions[1:]
	}
	g.sessions = append(g.sessions, sha256.Sum256([]byte(session)))
	return true
}

func (g *Guard) hasSession(r *http.Request) bool {
	cookie, err := r.Cookie(g.cookie)
	if err != nil {
		return false
	}
	sum := sha256.Sum256([]byte(cookie.Value))
	g.mu.Lock()
	defer g.mu.Unlock()
	found := 0
	for i := range g.sessions {
		found |= subtle.ConstantTimeCompare(sum[:], g.sessions[i][:])
	}
	return found == 1
}
