package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/parleyhq/parley/internal/access"
)

// subjectForm is the form of a user id.
var subjectForm = regexp.MustCompile(`^[!-~]{1,128}$`)

// ssidForm is the form of a login's id, and kidForm that of a secret's id.
var (
	ssidForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	kidForm  = regexp.MustCompile(`^[A-Za-z0-9_.:=+-]{1,64}$`)
)

// erasedUser is the sender of erased messages. No token may have it as its subject.
const erasedUser = "~erased"

// minSecretBytes is the minimum size of an HS256 secret, which servers require.
const minSecretBytes = 32

type tokenCommand struct {
	Sub        string        `help:"The user id of the token's subject." required:"" placeholder:"ID"`
	SSID       string        `name:"ssid" help:"The id of the login, for signing out: the same in all tokens of one login, unique among all users." placeholder:"ID"`
	Kid        string        `help:"The id of the secret that signs the token, as in the server's auth.hs256_secrets. Without it a server tries each." placeholder:"ID"`
	SecretFile string        `help:"A file with the secret that signs the token. Its final newline is dropped." type:"path" placeholder:"FILE"`
	TTL        time.Duration `name:"ttl" help:"How long the token is valid." default:"24h"`
	Cap        []string      `help:"A capability; may be repeated. 'channel:<pattern>=<action>,...' with the actions send, history, subscribe, moderate, send_as, create, manage; 'member:<pattern>=<action>,...' with the same except send_as, for channels of which the subject is a member; 'session:<pattern>=<action>,...' with append, history, subscribe, send_as, manage; 'queue:<pattern>=<action>,...' with produce, consume; 'presence=<action>,...' with connect, watch, list; 'admin=<action>,...' with read, write; 'presence' and 'admin' alone have all actions." sep:"none" default:"channel:*=send,history,subscribe" placeholder:"CAP"`
}

// tokenJSON is the JSON form of a token.
type tokenJSON struct {
	Token     string `json:"token"`
	Subject   string `json:"sub"`
	ExpiresAt string `json:"expire_time"`
}

// Run creates a token and signs it with the server's secret.
func (c *tokenCommand) Run(s *session) error {
	if !subjectForm.MatchString(c.Sub) {
		return usagef("--sub: must be 1 to 128 printable ASCII characters without spaces")
	}
	if c.Sub == erasedUser {
		return usagef("--sub: %s is reserved for the sender of erased messages; servers refuse its tokens", erasedUser)
	}
	if c.TTL <= 0 {
		return usagef("--ttl must be positive")
	}
	if c.SSID != "" && !ssidForm.MatchString(c.SSID) {
		return usagef("--ssid: must be 1 to 64 characters of A-Z a-z 0-9 _ -")
	}
	if c.Kid != "" && !kidForm.MatchString(c.Kid) {
		return usagef("--kid: must be 1 to 64 characters of A-Z a-z 0-9 _ . : = + -")
	}
	capabilities, err := parseCapabilities(c.Cap)
	if err != nil {
		return err
	}
	key, err := s.secret(c.SecretFile)
	if err != nil {
		return err
	}
	now := time.Now()
	expires := now.Add(c.TTL)
	claims := jwt.MapClaims{"sub": c.Sub, "iat": now.Unix(), "exp": expires.Unix(), "cap": capabilities}
	if c.SSID != "" {
		claims["ssid"] = c.SSID
	}
	unsigned := jwt.NewWithClaims(jwt.SigningMethodHS256, claims)
	if c.Kid != "" {
		unsigned.Header["kid"] = c.Kid
	}
	token, err := unsigned.SignedString([]byte(key))
	if err != nil {
		return fmt.Errorf("sign: %w", err)
	}
	return s.printer().print(tokenJSON{Token: token, Subject: c.Sub, ExpiresAt: expires.UTC().Format(time.RFC3339)}, token)
}

// secret returns the content of file. If file is empty, it returns $PARLEY_AUTH_HS256_SECRET or the
// content of the file that $PARLEY_AUTH_HS256_SECRET_FILE names, as a server does. If neither is
// set, it returns the secret that a local `parleyd dev` wrote.
func (s *session) secret(file string) (string, error) {
	path, hint := file, ""
	if path == "" {
		if key := s.getenv("PARLEY_AUTH_HS256_SECRET"); key != "" {
			return key, nil
		}
		path = s.getenv("PARLEY_AUTH_HS256_SECRET_FILE")
	}
	if path == "" {
		path, hint = filepath.Join(s.flags.DataDir, access.SecretFile), " (has 'parleyd dev' run with this --data-dir?)"
	}
	secret, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the secret: %w%s", err, hint)
	}
	key := strings.TrimSuffix(strings.TrimSuffix(string(secret), "\n"), "\r")
	if key == "" {
		return "", fmt.Errorf("read the secret: %s is empty", path)
	}
	if len(key) < minSecretBytes {
		return "", fmt.Errorf("read the secret: %s has %d bytes: at least %d are required", path, len(key), minSecretBytes)
	}
	return key, nil
}

// capabilityKind describes the capabilities that begin with one name, such as `channel`.
type capabilityKind struct {
	actions []string
	// maxName is the maximum number of characters of a name that a pattern covers. It is 0 for a
	// capability without a pattern.
	maxName int
}

// capabilityKinds maps the name of a capability, before its pattern, to its kind.
var capabilityKinds = map[string]capabilityKind{
	"channel":  {[]string{"send", "history", "subscribe", "moderate", "send_as", "create", "manage"}, 128},
	"member":   {[]string{"send", "history", "subscribe", "moderate", "create", "manage"}, 128},
	"session":  {[]string{"append", "history", "subscribe", "send_as", "manage"}, 64},
	"queue":    {[]string{"produce", "consume"}, 64},
	"presence": {[]string{"connect", "watch", "list"}, 0},
	"admin":    {[]string{"read", "write"}, 0},
}

// patternForm is a name or a prefix of names: a `*` at the end matches any rest.
var patternForm = regexp.MustCompile(`^([A-Za-z0-9_-]+|[A-Za-z0-9_-]*\*)$`)

// parseCapabilities parses capabilities such as `channel:*=send,history`, `queue:jobs=consume`,
// `presence=watch`, `admin=read` and `admin`. A capability or an action that no server knows is an
// error: otherwise a token with it would seem to allow something.
func parseCapabilities(texts []string) (map[string][]string, error) {
	capabilities := make(map[string][]string)
	for _, text := range texts {
		name, actions, ok := strings.Cut(text, "=")
		prefix, pattern, two := strings.Cut(name, ":")
		kind, known := capabilityKinds[prefix]
		if !ok && known && kind.maxName == 0 {
			actions, ok = strings.Join(kind.actions, ","), true
		}
		if !ok || !known || two != (kind.maxName > 0) {
			return nil, usagef("--cap %q: must be channel:<pattern>=<action>,..., member:<pattern>=<action>,..., session:<pattern>=<action>,..., queue:<pattern>=<action>,..., presence=<action>,..., presence, admin=<action>,... or admin", text)
		}
		if two && (!patternForm.MatchString(pattern) || len(strings.TrimSuffix(pattern, "*")) > kind.maxName) {
			return nil, usagef("--cap %q: the pattern must be 1 to %d characters of A-Z a-z 0-9 _ -, optionally followed by *", text, kind.maxName)
		}
		for action := range strings.SplitSeq(actions, ",") {
			if action = strings.TrimSpace(action); !slices.Contains(kind.actions, action) {
				return nil, usagef("--cap %q: unknown action %q: must be one of %s", text, action, strings.Join(kind.actions, ", "))
			}
			capabilities[name] = append(capabilities[name], action)
		}
	}
	return capabilities, nil
}
