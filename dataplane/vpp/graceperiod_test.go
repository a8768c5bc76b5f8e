package vpp

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rcu returns a file like the kernel's setting, and the path of the marker.
func rcu(t *testing.T, value string) (setting, marker string) {
	t.Helper()
	dir := t.TempDir()
	setting = filepath.Join(dir, "rcu_expedited")
	marker = filepath.Join(dir, "marker")
	must(t, os.WriteFile(setting, []byte(value+"\n"), 0o600))
	return setting, marker
}

func mustBe(t *testing.T, setting, want string) {
	t.Helper()
	raw, err := os.ReadFile(setting)
	must(t, err)
	if got := strings.TrimSpace(string(raw)); got != want {
		t.Errorf("the setting is %s, want %s", got, want)
	}
}

func TestGracePeriodsAreExpeditedWhileNeeded(t *testing.T) {
	setting, marker := rcu(t, "0")
	g, err := NewGracePeriods(setting, marker)
	must(t, err)
	for range 2 {
		first, err := g.expedite()
		must(t, err)
		second, err := g.expedite()
		must(t, err)
		mustBe(t, setting, "1")
		first()
		mustBe(t, setting, "1")
		second()
		mustBe(t, setting, "0")
		if _, err := os.Stat(marker); err == nil {
			t.Error("the marker is left")
		}
	}
}

func TestGracePeriodsExpeditedByTheAdministratorStayExpedited(t *testing.T) {
	setting, marker := rcu(t, "1")
	g, err := NewGracePeriods(setting, marker)
	must(t, err)
	end, err := g.expedite()
	must(t, err)
	end()
	mustBe(t, setting, "1")
}

func TestGracePeriodsExpeditedByAKilledAgentAreRestored(t *testing.T) {
	setting, marker := rcu(t, "0")
	killed, err := NewGracePeriods(setting, marker)
	must(t, err)
	if _, err := killed.expedite(); err != nil {
		t.Fatal(err)
	}
	_, err = NewGracePeriods(setting, marker)
	must(t, err)
	mustBe(t, setting, "0")
	_, err = killed.expedite()
	must(t, err)
	must(t, os.WriteFile(setting, []byte("1"), 0o600))
	must(t, os.WriteFile(marker, nil, 0o600))
	must(t, RestoreGracePeriods(setting, marker)) // by an agent that is configured not to use it
	mustBe(t, setting, "0")
	must(t, os.WriteFile(setting, []byte("1"), 0o600))
	must(t, RestoreGracePeriods(setting, marker)) // without a marker the setting is the administrator's
	mustBe(t, setting, "1")
}

func TestGracePeriodsThatCannotBeSetAreAnError(t *testing.T) {
	if _, err := NewGracePeriods(filepath.Join(t.TempDir(), "none"), filepath.Join(t.TempDir(), "marker")); err == nil {
		t.Error("no error for a kernel without the setting")
	}
}
