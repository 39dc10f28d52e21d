package authn

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
)

// ReadPublicKeys reads PEM files, each with one or more public keys or certificates. It fails for a
// key that Config.PublicKeys does not accept.
func ReadPublicKeys(files []string) ([]crypto.PublicKey, error) {
	var keys []crypto.PublicKey
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read public key: %w", err)
		}
		found, err := parsePublicKeys(data)
		if err != nil {
			return nil, fmt.Errorf("public key in %s: %w", file, err)
		}
		keys = append(keys, found...)
	}
	return keys, nil
}

func parsePublicKeys(data []byte) ([]crypto.PublicKey, error) {
	var keys []crypto.PublicKey
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		var key crypto.PublicKey
		var err error
		switch block.Type {
		case "PUBLIC KEY":
			key, err = x509.ParsePKIXPublicKey(block.Bytes)
		case "RSA PUBLIC KEY":
			key, err = x509.ParsePKCS1PublicKey(block.Bytes)
		case "CERTIFICATE":
			var cert *x509.Certificate
			if cert, err = x509.ParseCertificate(block.Bytes); err == nil {
				key = cert.PublicKey
			}
		default:
			err = fmt.Errorf("PEM block %q is not a public key", block.Type)
		}
		if err != nil {
			return nil, err
		}
		if _, err := algorithmOf(key); err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New("no PEM block found")
	}
	return keys, nil
}
