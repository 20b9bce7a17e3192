package chain

import (
	"bufio"
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"

	"duly.dev/duly/internal/core"
)

// Head is the last link of a partition at some time, to be kept out of the database. One
// without a signature can be made up by anyone who may write where it is kept.
type Head struct {
	Installation string       `json:"installation"`
	Partition    int          `json:"partition"`
	Height       int64        `json:"height"`
	Epoch        int64        `json:"epoch"`
	Commit       int64        `json:"commit"`
	At           core.Instant `json:"at"` // when it was signed
	Hash         Hash         `json:"hash"`
	Key          string       `json:"key,omitempty"`       // of the signer: see keyName
	Signature    string       `json:"signature,omitempty"` // base64, of Ed25519
}

// message is what is signed.
func (h *Head) message() []byte {
	return fmt.Appendf(nil, "duly head 1\n%s\n%d\n%d\n%d\n%d\n%d\n%s\n", h.Installation, h.Partition, h.Height, h.Epoch, h.Commit, int64(h.At), h.Hash)
}

// Sign signs the head.
func (h *Head) Sign(key ed25519.PrivateKey) {
	h.Key = keyName(key.Public().(ed25519.PublicKey)) //nolint:forcetypeassert // it always is one
	h.Signature = base64.StdEncoding.EncodeToString(ed25519.Sign(key, h.message()))
}

// Signed reports whether the head has a signature at all.
func (h *Head) Signed() bool { return h.Signature != "" }

// Check holds the signature to a key. Error: it has none, or not that key's.
func (h *Head) Check(key ed25519.PublicKey) error {
	if !h.Signed() {
		return fmt.Errorf("head of partition %d at height %d: it is not signed", h.Partition, h.Height)
	}
	signature, err := base64.StdEncoding.DecodeString(h.Signature)
	if err != nil || !ed25519.Verify(key, h.message(), signature) {
		return fmt.Errorf("head of partition %d at height %d: its signature is not of key %s", h.Partition, h.Height, keyName(key))
	}
	return nil
}

// keyName is the beginning of the SHA-256 of a public key, in hexadecimal digits.
func keyName(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:8])
}

// ReadKey reads a private key of Ed25519 from a PEM file (PKCS #8).
func ReadKey(text []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, errors.New("no PEM block PRIVATE KEY: `openssl genpkey -algorithm ed25519` makes one")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("the private key cannot be read") // the error may hold parts of it
	}
	private, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the private key is %T, want Ed25519", key)
	}
	return private, nil
}

// ReadPublicKey reads a public key of Ed25519 from a PEM file (PKIX), or takes that of a
// private one.
func ReadPublicKey(text []byte) (ed25519.PublicKey, error) {
	block, _ := pem.Decode(text)
	if block != nil && block.Type == "PRIVATE KEY" {
		private, err := ReadKey(text)
		if err != nil {
			return nil, err
		}
		return private.Public().(ed25519.PublicKey), nil //nolint:forcetypeassert // it always is one
	}
	if block == nil || block.Type != "PUBLIC KEY" {
		return nil, errors.New("no PEM block PUBLIC KEY: `openssl pkey -pubout` makes one")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the public key cannot be read: %w", err)
	}
	public, ok := key.(crypto.PublicKey).(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("the public key is %T, want Ed25519", key)
	}
	return public, nil
}

// lineMax is the longest line of a file of heads, in bytes.
const lineMax = 64 << 10

// ReadHeads reads heads, one a line as JSON.
func ReadHeads(r io.Reader) (all []Head, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, lineMax)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var h Head
		if err := json.Unmarshal(lines.Bytes(), &h); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if h.Height < 1 || h.Partition < 0 {
			return nil, fmt.Errorf("line %d: partition %d, height %d: that is no head", n, h.Partition, h.Height)
		}
		all = append(all, h)
	}
	return all, lines.Err()
}

// AppendHeads writes heads at the end of a file: all of them, or none where there is no room for them.
func AppendHeads(f interface {
	io.WriteSeeker
	Truncate(size int64) error
}, all []Head) error {
	var lines bytes.Buffer
	_ = WriteHeads(&lines, all) // a buffer takes all
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if _, err = f.Write(lines.Bytes()); err != nil {
		return errors.Join(err, f.Truncate(size))
	}
	return nil
}

// WriteHeads writes heads, one a line as JSON.
func WriteHeads(w io.Writer, all []Head) error {
	enc := json.NewEncoder(w)
	for i := range all {
		if err := enc.Encode(&all[i]); err != nil {
			return err
		}
	}
	return nil
}
