package rpc

import (
	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
)

// patternTexts has a sentence about each pattern of the schema. Errors contain it instead of the
// regular expression. The patterns themselves stay in the schema, because clients read them there.
var patternTexts = map[string]string{
	`^[A-Za-z0-9_-]{1,64}$`:                         "must be 1 to 64 of A-Z a-z 0-9 _ -",
	`^[A-Za-z0-9_-]{0,64}$`:                         "must be at most 64 of A-Z a-z 0-9 _ -",
	`^[A-Za-z0-9_-]{1,128}$`:                        "must be 1 to 128 of A-Z a-z 0-9 _ -",
	`^[A-Za-z0-9_.-]{1,64}$`:                        "must be 1 to 64 of A-Z a-z 0-9 _ . -",
	`^[A-Za-z0-9_.-]{0,64}$`:                        "must be at most 64 of A-Z a-z 0-9 _ . -",
	`^[A-Za-z0-9_.-]{0,32}$`:                        "must be at most 32 of A-Z a-z 0-9 _ . -",
	`^[a-z_]{1,32}$`:                                "must be 1 to 32 of a-z _",
	`^[a-z2-7]{24}$`:                                "must be 24 of a-z 2-7",
	`^[A-Z2-7]{0,26}$`:                              "must be at most 26 of A-Z 2-7",
	`^[!-~]{1,128}$`:                                "must be 1 to 128 printable ASCII characters without spaces",
	`^[!-~]{0,128}$`:                                "must be at most 128 printable ASCII characters without spaces",
	`^[^\r\n\x00]*$`:                                "must not contain CR, LF or NUL",
	"^(~[A-Za-z0-9_-]{1,64}|[A-Za-z0-9_-]{1,128})$": "must be 1 to 128 of A-Z a-z 0-9 _ -, or ~ and 1 to 64 of them",
	"^((channel|member|session|queue):([A-Za-z0-9_-]{1,128}|[A-Za-z0-9_-]{0,128}[*])|presence|admin)$": "must be presence, admin, or one of " +
		"channel: member: session: queue: and 1 to 128 of A-Z a-z 0-9 _ - with * at the end for a prefix",
}

// explainPatterns replaces the messages of broken patterns by sentences.
func explainPatterns(e *protovalidate.ValidationError) {
	for _, v := range e.Violations {
		if v.Proto.GetRuleId() != "string.pattern" {
			continue
		}
		pattern, _ := v.RuleValue.Interface().(string)
		if text, ok := patternTexts[pattern]; ok {
			v.Proto.Message = new(subject(v.Proto) + text)
		}
	}
}

// subject names the part of a map that a violation is about. The field's path has the map's key, so
// without it a text about a value would seem to be about the key.
func subject(v *validate.Violation) string {
	path := v.GetField().GetElements()
	switch {
	case v.GetForKey():
		return "the name "
	case len(path) > 0 && path[len(path)-1].HasStringKey():
		return "the value "
	default:
		return ""
	}
}
