// ../../node_modules/@connectrpc/connect/dist/esm/code.js
var e;
(function(e) {
	e[e.Canceled = 1] = "Canceled", e[e.Unknown = 2] = "Unknown", e[e.InvalidArgument = 3] = "InvalidArgument", e[e.DeadlineExceeded = 4] = "DeadlineExceeded", e[e.NotFound = 5] = "NotFound", e[e.AlreadyExists = 6] = "AlreadyExists", e[e.PermissionDenied = 7] = "PermissionDenied", e[e.ResourceExhausted = 8] = "ResourceExhausted", e[e.FailedPrecondition = 9] = "FailedPrecondition", e[e.Aborted = 10] = "Aborted", e[e.OutOfRange = 11] = "OutOfRange", e[e.Unimplemented = 12] = "Unimplemented", e[e.Internal = 13] = "Internal", e[e.Unavailable = 14] = "Unavailable", e[e.DataLoss = 15] = "DataLoss", e[e.Unauthenticated = 16] = "Unauthenticated";
})(e ||= {});
// ../../node_modules/@bufbuild/protobuf/dist/esm/is-message.js
function t(e, t) {
	return typeof e == "object" && e && "$typeName" in e && typeof e.$typeName == "string" ? t === void 0 || t.typeName === e.$typeName : !1;
}
// ../../node_modules/@bufbuild/protobuf/dist/esm/descriptors.js
var n;
(function(e) {
	e[e.DOUBLE = 1] = "DOUBLE", e[e.FLOAT = 2] = "FLOAT", e[e.INT64 = 3] = "INT64", e[e.UINT64 = 4] = "UINT64", e[e.INT32 = 5] = "INT32", e[e.FIXED64 = 6] = "FIXED64", e[e.FIXED32 = 7] = "FIXED32", e[e.BOOL = 8] = "BOOL", e[e.STRING = 9] = "STRING", e[e.BYTES = 12] = "BYTES", e[e.UINT32 = 13] = "UINT32", e[e.SFIXED32 = 15] = "SFIXED32", e[e.SFIXED64 = 16] = "SFIXED64", e[e.SINT32 = 17] = "SINT32", e[e.SINT64 = 18] = "SINT64";
})(n ||= {});
// ../../node_modules/@bufbuild/protobuf/dist/esm/wire/varint.js
function r() {
	let e = 0, t = 0;
	for (let n = 0; n < 28; n += 7) {
		let r = this.buf[this.pos++];
		if (e |= (r & 127) << n, !(r & 128)) return this.assertBounds(), [e, t];
	}
	let n = this.buf[this.pos++];
	if (e |= (n & 15) << 28, t = (n & 112) >> 4, !(n & 128)) return this.assertBounds(), [e, t];
	for (let n = 3; n <= 31; n += 7) {
		let r = this.buf[this.pos++];
		if (t |= (r & 127) << n, !(r & 128)) return this.assertBounds(), [e, t];
	}
	throw Error("invalid varint");
}
function i(e, t, n) {
	for (let r = 0; r < 28; r += 7) {
		let i = e >>> r, a = !(!(i >>> 7) && t == 0), o = (a ? i | 128 : i) & 255;
		if (n.push(o), !a) return;
	}
	let r = e >>> 28 & 15 | (t & 7) << 4, i = !!(t >> 3);
	if (n.push((i ? r | 128 : r) & 255), i) {
		for (let e = 3; e < 31; e += 7) {
			let r = t >>> e, i = !!(r >>> 7), a = (i ? r | 128 : r) & 255;
			if (n.push(a), !i) return;
		}
		n.push(t >>> 31 & 1);
	}
}
var a = 4294967296;
function o(e) {
	let t = e[0] === "-";
	t && (e = e.slice(1));
	let n = 1e6, r = 0, i = 0;
	function o(t, o) {
		let s = Number(e.slice(t, o));
		i *= n, r = r * n + s, r >= a && (i += r / a | 0, r %= a);
	}
	return o(-24, -18), o(-18, -12), o(-12, -6), o(-6), t ? d(r, i) : u(r, i);
}
function s(e, t) {
	let n = u(e, t), r = n.hi & 2147483648;
	r && (n = d(n.lo, n.hi));
	let i = c(n.lo, n.hi);
	return r ? "-" + i : i;
}
function c(e, t) {
	if ({lo: e, hi: t} = l(e, t), t <= 2097151) return String(a * t + e);
	let n = e & 16777215, r = (e >>> 24 | t << 8) & 16777215, i = t >> 16 & 65535, o = n + r * 6777216 + i * 6710656, s = r + i * 8147497, c = i * 2, u = 1e7;
	return o >= u && (s += Math.floor(o / u), o %= u), s >= u && (c += Math.floor(s / u), s %= u), c.toString() + f(s) + f(o);
}
function l(e, t) {
	return {
		lo: e >>> 0,
		hi: t >>> 0
	};
}
function u(e, t) {
	return {
		lo: e | 0,
		hi: t | 0
	};
}
function d(e, t) {
	return t = ~t, e ? e = ~e + 1 : t += 1, u(e, t);
}
var f = (e) => {
	let t = String(e);
	return "0000000".slice(t.length) + t;
};
function ee(e, t) {
	if (e >= 0) {
		for (; e > 127;) t.push(e & 127 | 128), e >>>= 7;
		t.push(e);
	} else {
		for (let n = 0; n < 9; n++) t.push(e & 127 | 128), e >>= 7;
		t.push(1);
	}
}
function te() {
	let e = this.buf[this.pos++], t = e & 127;
	if (!(e & 128) || (e = this.buf[this.pos++], t |= (e & 127) << 7, !(e & 128)) || (e = this.buf[this.pos++], t |= (e & 127) << 14, !(e & 128)) || (e = this.buf[this.pos++], t |= (e & 127) << 21, !(e & 128))) return this.assertBounds(), t;
	e = this.buf[this.pos++], t |= (e & 15) << 28;
	for (let t = 5; e & 128 && t < 10; t++) e = this.buf[this.pos++];
	if (e & 128) throw Error("invalid varint");
	return this.assertBounds(), t >>> 0;
}
// ../../node_modules/@bufbuild/protobuf/dist/esm/proto-int64.js
var p = /*@__PURE__*/ ne();
function ne() {
	let e = /* @__PURE__ */ new DataView(/* @__PURE__ */ new ArrayBuffer(8));
	if (typeof BigInt == "function" && typeof e.getBigInt64 == "function" && typeof e.getBigUint64 == "function" && typeof e.setBigInt64 == "function" && typeof e.setBigUint64 == "function" && (globalThis.Deno || globalThis.Bun || typeof process != "object" || typeof process.env != "object" || process.env.BUF_BIGINT_DISABLE !== "1")) {
		let t = BigInt("-9223372036854775808"), n = BigInt("9223372036854775807"), r = BigInt("0"), i = BigInt("18446744073709551615");
		return {
			zero: BigInt(0),
			supported: !0,
			parse(e) {
				let r = typeof e == "bigint" ? e : BigInt(e);
				if (r > n || r < t) throw Error(`invalid int64: ${e}`);
				return r;
			},
			uParse(e) {
				let t = typeof e == "bigint" ? e : BigInt(e);
				if (t > i || t < r) throw Error(`invalid uint64: ${e}`);
				return t;
			},
			enc(t) {
				return e.setBigInt64(0, this.parse(t), !0), {
					lo: e.getInt32(0, !0),
					hi: e.getInt32(4, !0)
				};
			},
			uEnc(t) {
				return e.setBigInt64(0, this.uParse(t), !0), {
					lo: e.getInt32(0, !0),
					hi: e.getInt32(4, !0)
				};
			},
			dec(t, n) {
				return e.setInt32(0, t, !0), e.setInt32(4, n, !0), e.getBigInt64(0, !0);
			},
			uDec(t, n) {
				return e.setInt32(0, t, !0), e.setInt32(4, n, !0), e.getBigUint64(0, !0);
			}
		};
	}
	return {
		zero: "0",
		supported: !1,
		parse(e) {
			return typeof e != "string" && (e = e.toString()), re(e), e;
		},
		uParse(e) {
			return typeof e != "string" && (e = e.toString()), ie(e), e;
		},
		enc(e) {
			return typeof e != "string" && (e = e.toString()), re(e), o(e);
		},
		uEnc(e) {
			return typeof e != "string" && (e = e.toString()), ie(e), o(e);
		},
		dec(e, t) {
			return s(e, t);
		},
		uDec(e, t) {
			return c(e, t);
		}
	};
}
function re(e) {
	if (!/^-?[0-9]+$/.test(e)) throw Error("invalid int64: " + e);
}
function ie(e) {
	if (!/^[0-9]+$/.test(e)) throw Error("invalid uint64: " + e);
}
// ../../node_modules/@bufbuild/protobuf/dist/esm/reflect/scalar.js
function m(e, t) {
	switch (e) {
		case n.STRING: return "";
		case n.BOOL: return !1;
		case n.DOUBLE:
		case n.FLOAT: return 0;
		case n.INT64:
		case n.UINT64:
		case n.SFIXED64:
		case n.FIXED64:
		case n.SINT64: return t ? "0" : p.zero;
		case n.BYTES: return /* @__PURE__ */ new Uint8Array();
		default: return 0;
	}
}
function ae(e, t) {
	switch (e) {
		case n.BOOL: return t === !1;
		case n.STRING: return t === "";
		case n.BYTES: return t instanceof Uint8Array && !t.byteLength;
		case n.DOUBLE:
		case n.FLOAT: return Object.is(t, 0);
		default: return t == 0;
	}
}
// ../../node_modules/@bufbuild/protobuf/dist/esm/reflect/unsafe.js
var oe = 2, h = Symbol.for("reflect unsafe local");
function se(e, t) {
	let n = e[t.localName].case;
	return n === void 0 ? n : t.fields.find((e) => e.localName === n);
}
function ce(e, t) {
	let n = t.localName;
	if (t.oneof) return e[t.oneof.localName].case === n;
	if (t.presence != oe) return e[n] !== void 0 && Object.prototype.hasOwnProperty.call(e, n);
	switch (t.fieldKind) {
		case "list": return e[n].length > 0;
		case "map": return Object.keys(e[n]).length > 0;
		case "scalar": return !ae(t.scalar, e[n]);
		case "enum": return e[n] !== t.enum.values[0].number;
	}
	throw Error("message field with implicit presence");
}
function g(e, t) {
	return Object.prototype.hasOwnProperty.call(e, t) && e[t] !== void 0;
}
function le(e, t) {
	if (t.oneof) {
		let n = e[t.oneof.localName];
		return n.case === t.localName ? n.value : void 0;
	}
	return e[t.localName];
}
function ue(e, t, n) {
	t.oneof ? e[t.oneof.localName] = {
		case: t.localName,
		value: n
	} : e[t.localName] = n;
}
function de(e, t) {
	let n = t.localName;
	if (t.oneof) {
		let r = t.oneof.localName;
		e[r].case === n && (e[r] = { case: void 0 });
	} else if (t.presence != oe) delete e[n];
	else switch (t.fieldKind) {
		case "map":
			e[n] = {};
			break;
		case "list":
			e[n] = [];
			break;
		case "enum":
			e[n] = t.enum.values[0].number;
			break;
		case "scalar": e[n] = m(t.scalar, t.longAsString);
	}
}
// ../../node_modules/@bufbuild/protobuf/dist/esm/reflect/guard.js
function _(e) {
	return typeof e == "object" && !!e && !Array.isArray(e);
}
function fe(e, t) {
	if (_(e) && h in e && "add" in e && "field" in e && typeof e.field == "function") {
		if (t !== void 0) {
			let n = t, r = e.field();
			return n.listKind == r.listKind && n.scalar === r.scalar && n.message?.typeName === r.message?.typeName && n.enum?.typeName === r.enum?.typeName;
		}
		return !0;
	}
	return !1;
}
function pe(e, t) {
	if (_(e) && h in e && "has" in e && "field" in e && typeof e.field == "function") {
		if (t !== void 0) {
			let n = t, r = e.field();
			return n.mapKey === r.mapKey && n.mapKind == r.mapKind && n.scalar === r.scalar && n.message?.typeName === r.message?.typeName && n.enum?.typeName === r.enum?.typeName;
		}
		return !0;
	}
	return !1;
}
function me(e, t) {
	return _(e) && h in e && "desc" in e && _(e.desc) && e.desc.kind === "message" && (t === void 0 || e.desc.typeName == t.typeName);
}
// ../../node_modules/@bufbuild/protobuf/dist/esm/wkt/wrappers.js
function he(e) {
	return _e(e.$typeName);
}
function v(e) {
	let t = e.fields[0];
	return _e(e.typeName) && t !== void 0 && t.fieldKind == "scalar" && t.name == "value" && t.number == 1;
}
function ge(e) {
	switch (e.typeName) {
		case "google.protobuf.Any":
		case "google.protobuf.Timestamp":
		case "google.protobuf.Duration":
		case "google.protobuf.FieldMask":
		case "google.protobuf.Struct":
		case "google.protobuf.Value":
		case "google.protobuf.ListValue": return !0;
		default: return v(e);
	}
}
function _e(e) {
	return e.startsWith("google.protobuf.") && [
		"DoubleValue",
		"FloatValue",
		"Int64Value",
		"UInt64Value",
		"Int32Value",
		"UInt32Value",
		"BoolValue",
		"StringValue",
		"BytesValue"
	].includes(e.substring(16));
}
// ../../node_modules/@bufbuild/protobuf/dist/esm/create.js
var ve = 999, ye = 998, be = 2;
function y(e, n) {
	if (t(n, e)) return n;
	let r = Ae(e);
	return n !== void 0 && xe(e, r, n), r;
}
function xe(e, t, n) {
	for (let r of e.members) {
		let e = n[r.localName];
		if (e == null) continue;
		let i;
		if (r.kind == "oneof") {
			let t = se(n, r);
			if (!t) continue;
			i = t, e = le(n, t);
		} else i = r;
		switch (i.fieldKind) {
			case "message":
				e = Te(i, e);
				break;
			case "scalar":
				e = Se(i, e);
				break;
			case "list":
				e = we(i, e);
				break;
			case "map": e = Ce(i, e);
		}
		ue(t, i, e);
	}
	return t;
}
function Se(e, t) {
	return e.scalar == n.BYTES ? Ee(t) : t;
}
function Ce(e, t) {
	if (_(t)) {
		if (e.scalar == n.BYTES) return De(t, Ee);
		if (e.mapKind == "message") return De(t, (t) => Te(e, t));
	}
	return t;
}
function we(e, t) {
	if (Array.isArray(t)) {
		if (e.scalar == n.BYTES) return t.map(Ee);
		if (e.listKind == "message") return t.map((t) => Te(e, t));
	}
	return t;
}
function Te(e, n) {
	if (e.fieldKind == "message" && !e.oneof && v(e.message)) return Se(e.message.fields[0], n);
	if (_(n)) {
		if (e.message.typeName == "google.protobuf.Struct" && e.parent.typeName !== "google.protobuf.Value") return n;
		if (!t(n, e.message)) return y(e.message, n);
	}
	return n;
}
function Ee(e) {
	return Array.isArray(e) ? new Uint8Array(e) : e;
}
function De(e, t) {
	let n = {};
	for (let r of Object.entries(e)) n[r[0]] = t(r[1]);
	return n;
}
var Oe = Symbol(), ke = /* @__PURE__ */ new WeakMap();
function Ae(e) {
	let t;
	if (je(e)) {
		let n = ke.get(e), r, i;
		if (n) ({prototype: r, members: i} = n);
		else {
			r = {}, i = /* @__PURE__ */ new Set();
			for (let t of e.members) t.kind != "oneof" && (t.fieldKind == "scalar" || t.fieldKind == "enum") && t.presence != be && (i.add(t), r[t.localName] = Me(t));
			ke.set(e, {
				prototype: r,
				members: i
			});
		}
		t = Object.create(r), t.$typeName = e.typeName;
		for (let n of e.members) i.has(n) || (n.kind != "field" || n.fieldKind != "message" && (n.fieldKind != "scalar" && n.fieldKind != "enum" || n.presence == be)) && (t[n.localName] = Me(n));
	} else {
		t = { $typeName: e.typeName };
		for (let n of e.members) (n.kind == "oneof" || n.presence == be) && (t[n.localName] = Me(n));
	}
	return t;
}
function je(e) {
	switch (e.file.edition) {
		case ve: return !1;
		case ye: return !0;
		default: return e.fields.some((e) => e.presence != be && e.fieldKind != "message" && !e.oneof);
	}
}
function Me(e) {
	if (e.kind == "oneof") return { case: void 0 };
	if (e.fieldKind == "list") return [];
	if (e.fieldKind == "map") return {};
	if (e.fieldKind == "message") return Oe;
	let t = e.getDefaultValue();
	return t === void 0 ? e.fieldKind == "scalar" ? m(e.scalar, e.longAsString) : e.enum.values[0].number : e.fieldKind == "scalar" && e.longAsString ? t.toString() : t;
}
// ../../node_modules/@bufbuild/protobuf/dist/esm/reflect/error.js
var Ne = [
	"FieldValueInvalidError",
	"FieldListRangeError",
	"ForeignFieldError"
], b = class extends Error {
	constructor(e, t, n = "FieldValueInvalidError") {
		super(t), this.name = n, this.field = () => e;
	}
};
function Pe(e) {
	return e instanceof Error && Ne.includes(e.name) && "field" in e && typeof e.field == "function";
}
// ../../node_modules/@bufbuild/protobuf/dist/esm/wire/text-encoding.js
var Fe = Symbol.for("@bufbuild/protobuf/text-encoding");
function Ie() {
	if (globalThis[Fe] == null) {
		let e = new globalThis.TextEncoder(), t = new globalThis.TextDecoder(), n;
		globalThis[Fe] = {
			encodeUtf8(t) {
				return e.encode(t);
			},
			decodeUtf8(e, r) {
				return r ? (n === void 0 && (n = new globalThis.TextDecoder("utf-8", { fatal: !0 })), n.decode(e)) : t.decode(e);
			},
			checkUtf8(e) {
				try {
					return !0;
				} catch {
					return !1;
				}
			}
		};
	}
	return globalThis[Fe];
}
// ../../node_modules/@bufbuild/protobuf/dist/esm/wire/binary-encoding.js
var x;
(function(e) {
	e[e.Varint = 0] = "Varint", e[e.Bit64 = 1] = "Bit64", e[e.LengthDelimited = 2] = "LengthDelimited", e[e.StartGroup = 3] = "StartGroup", e[e.EndGroup = 4] = "EndGroup", e[e.Bit32 = 5] = "Bit32";
})(x ||= {});
var Le = class {
	constructor(e = Ie().encodeUtf8) {
		this.encodeUtf8 = e, this.stack = [], this.chunks = [], this.buf = [];
	}
	finish() {
		this.buf.length && (this.chunks.push(new Uint8Array(this.buf)), this.buf = []);
		let e = 0;
		for (let t = 0; t < this.chunks.length; t++) e += this.chunks[t].length;
		let t = new Uint8Array(e), n = 0;
		for (let e = 0; e < this.chunks.length; e++) t.set(this.chunks[e], n), n += this.chunks[e].length;
		return this.chunks = [], t;
	}
	fork() {
		return this.stack.push({
			chunks: this.chunks,
			buf: this.buf
		}), this.chunks = [], this.buf = [], this;
	}
	join() {
		let e = this.finish(), t = this.stack.pop();
		if (!t) throw Error("invalid state, fork stack empty");
		return this.chunks = t.chunks, this.buf = t.buf, this.uint32(e.byteLength), this.raw(e);
	}
	tag(e, t) {
		return this.uint32((e << 3 | t) >>> 0);
	}
	raw(e) {
		return this.buf.length && (this.chunks.push(new Uint8Array(this.buf)), this.buf = []), this.chunks.push(e), this;
	}
	uint32(e) {
		for (Be(e); e > 127;) this.buf.push(e & 127 | 128), e >>>= 7;
		return this.buf.push(e), this;
	}
	int32(e) {
		return ze(e), ee(e, this.buf), this;
	}
	bool(e) {
		return this.buf.push(+!!e), this;
	}
	bytes(e) {
		return this.uint32(e.byteLength), this.raw(e);
	}
	string(e) {
		let t = this.encodeUtf8(e);
		return this.uint32(t.byteLength), this.raw(t);
	}
	float(e) {
		Ve(e);
		let t = /* @__PURE__ */ new Uint8Array(4);
		return new DataView(t.buffer).setFloat32(0, e, !0), this.raw(t);
	}
	double(e) {
		let t = /* @__PURE__ */ new Uint8Array(8);
		return new DataView(t.buffer).setFloat64(0, e, !0), this.raw(t);
	}
	fixed32(e) {
		Be(e);
		let t = /* @__PURE__ */ new Uint8Array(4);
		return new DataView(t.buffer).setUint32(0, e, !0), this.raw(t);
	}
	sfixed32(e) {
		ze(e);
		let t = /* @__PURE__ */ new Uint8Array(4);
		return new DataView(t.buffer).setInt32(0, e, !0), this.raw(t);
	}
	sint32(e) {
		return ze(e), e = (e << 1 ^ e >> 31) >>> 0, ee(e, this.buf), this;
	}
	sfixed64(e) {
		let t = /* @__PURE__ */ new Uint8Array(8), n = new DataView(t.buffer), r = p.enc(e);
		return n.setInt32(0, r.lo, !0), n.setInt32(4, r.hi, !0), this.raw(t);
	}
	fixed64(e) {
		let t = /* @__PURE__ */ new Uint8Array(8), n = new DataView(t.buffer), r = p.uEnc(e);
		return n.setInt32(0, r.lo, !0), n.setInt32(4, r.hi, !0), this.raw(t);
	}
	int64(e) {
		let t = p.enc(e);
		return i(t.lo, t.hi, this.buf), this;
	}
	sint64(e) {
		let t = p.enc(e), n = t.hi >> 31;
		return i(t.lo << 1 ^ n, (t.hi << 1 | t.lo >>> 31) ^ n, this.buf), this;
	}
	uint64(e) {
		let t = p.uEnc(e);
		return i(t.lo, t.hi, this.buf), this;
	}
}, Re = class {
	constructor(e, t = Ie().decodeUtf8) {
		this.decodeUtf8 = t, this.varint64 = r, this.uint32 = te, this.buf = e, this.len = e.length, this.pos = 0, this.view = new DataView(e.buffer, e.byteOffset, e.byteLength);
	}
	tag() {
		let e = this.pos, t = this.uint32(), n = this.pos - e;
		if (n > 5 || n == 5 && this.buf[this.pos - 1] > 15) throw Error("illegal tag: varint overflows uint32");
		let r = t >>> 3, i = t & 7;
		if (r <= 0 || i > 5) throw Error("illegal tag: field no " + r + " wire type " + i);
		return [r, i];
	}
	skip(e, t, n = 100) {
		let r = this.pos;
		switch (e) {
			case x.Varint:
				for (; this.buf[this.pos++] & 128;);
				break;
			case x.Bit64: this.pos += 4;
			case x.Bit32:
				this.pos += 4;
				break;
			case x.LengthDelimited:
				let r = this.uint32();
				this.pos += r;
				break;
			case x.StartGroup:
				if (n <= 0) throw Error("maximum recursion depth reached");
				for (;;) {
					let [e, r] = this.tag();
					if (r === x.EndGroup) {
						if (t !== void 0 && e !== t) throw Error("invalid end group tag");
						break;
					}
					this.skip(r, e, n - 1);
				}
				break;
			default: throw Error("cant skip wire type " + e);
		}
		return this.assertBounds(), this.buf.subarray(r, this.pos);
	}
	assertBounds() {
		if (this.pos > this.len) throw RangeError("premature EOF");
	}
	int32() {
		return this.uint32() | 0;
	}
	sint32() {
		let e = this.uint32();
		return e >>> 1 ^ -(e & 1);
	}
	int64() {
		return p.dec(...this.varint64());
	}
	uint64() {
		return p.uDec(...this.varint64());
	}
	sint64() {
		let [e, t] = this.varint64(), n = -(e & 1);
		return e = (e >>> 1 | (t & 1) << 31) ^ n, t = t >>> 1 ^ n, p.dec(e, t);
	}
	bool() {
		let [e, t] = this.varint64();
		return e !== 0 || t !== 0;
	}
	fixed32() {
		return this.view.getUint32((this.pos += 4) - 4, !0);
	}
	sfixed32() {
		return this.view.getInt32((this.pos += 4) - 4, !0);
	}
	fixed64() {
		return p.uDec(this.sfixed32(), this.sfixed32());
	}
	sfixed64() {
		return p.dec(this.sfixed32(), this.sfixed32());
	}
	float() {
		return this.view.getFloat32((this.pos += 4) - 4, !0);
	}
	double() {
		return this.view.getFloat64((this.pos += 8) - 8, !0);
	}
	bytes() {
		let e = this.uint32(), t = this.pos;
		return this.pos += e, this.assertBounds(), this.buf.subarray(t, t + e);
	}
	string(e) {
		return this.decodeUtf8(this.bytes(), e);
	}
};
function ze(e) {
	if (typeof e == "string") e = Number(e);
	else if (typeof e != "number") throw Error("invalid int32: " + typeof e);
	if (!Number.isInteger(e) || e > 2147483647 || e < -2147483648) throw Error("invalid int32: " + e);
}
function Be(e) {
	if (typeof e == "string") e = Number(e);
	else if (typeof e != "number") throw Error("invalid uint32: " + typeof e);
	if (!Number.isInteger(e) || e > 4294967295 || e < 0) throw Error("invalid uint32: " + e);
}
function Ve(e) {
	if (typeof e == "string") {
		let t = e;
		if (e = Number(e), Number.isNaN(e) && t !== "NaN") throw Error("invalid float32: " + t);
	} else if (typeof e != "number") throw Error("invalid float32: " + typeof e);
	if (Number.isFinite(e) && (e > 34028234663852886e22 || e < -34028234663852886e22)) throw Error("invalid float32: " + e);
}
// ../../node_modules/@bufbuild/protobuf/dist/esm/reflect/reflect-check.js
function S(e, t) {
	let n = e.fieldKind == "list" ? fe(t, e) : e.fieldKind == "map" ? pe(t, e) : We(e, t);
	if (n === !0) return;
	let r;
	switch (e.fieldKind) {
		case "list":
			r = `expected ${Je(e)}, got ${C(t)}`;
			break;
		case "map":
			r = `expected ${Ye(e)}, got ${C(t)}`;
			break;
		default: r = Ke(e, t, n);
	}
	return new b(e, r);
}
function He(e, t, n) {
	let r = We(e, n);
	if (r !== !0) return new b(e, `list item #${t + 1}: ${Ke(e, n, r)}`);
}
function Ue(e, t, n) {
	let r = Ge(t, e.mapKey);
	if (r !== !0) return new b(e, `invalid map key: ${Ke({ scalar: e.mapKey }, t, r)}`);
	let i = We(e, n);
	if (i !== !0) return new b(e, `map entry ${C(t)}: ${Ke(e, n, i)}`);
}
function We(e, t) {
	return e.scalar === void 0 ? e.enum === void 0 ? me(t, e.message) : e.enum.open ? Ge(t, n.INT32) : e.enum.values.some((e) => e.number === t) : Ge(t, e.scalar);
}
function Ge(e, t) {
	switch (t) {
		case n.DOUBLE: return typeof e == "number";
		case n.FLOAT: return typeof e == "number" ? Number.isNaN(e) || !Number.isFinite(e) ? !0 : e > 34028234663852886e22 || e < -34028234663852886e22 ? `${e.toFixed()} out of range` : !0 : !1;
		case n.INT32:
		case n.SFIXED32:
		case n.SINT32: return typeof e != "number" || !Number.isInteger(e) ? !1 : e > 2147483647 || e < -2147483648 ? `${e.toFixed()} out of range` : !0;
		case n.FIXED32:
		case n.UINT32: return typeof e != "number" || !Number.isInteger(e) ? !1 : e > 4294967295 || e < 0 ? `${e.toFixed()} out of range` : !0;
		case n.BOOL: return typeof e == "boolean";
		case n.STRING: return typeof e == "string" ? Ie().checkUtf8(e) || "invalid UTF8" : !1;
		case n.BYTES: return e instanceof Uint8Array;
		case n.INT64:
		case n.SFIXED64:
		case n.SINT64:
			if (typeof e == "bigint" || typeof e == "number" || typeof e == "string" && e.length > 0) try {
				return p.parse(e), !0;
			} catch {
				return `${e} out of range`;
			}
			return !1;
		case n.FIXED64:
		case n.UINT64:
			if (typeof e == "bigint" || typeof e == "number" || typeof e == "string" && e.length > 0) try {
				return p.uParse(e), !0;
			} catch {
				return `${e} out of range`;
			}
			return !1;
	}
}
function Ke(e, t, n) {
	return n = typeof n == "string" ? `: ${n}` : `, got ${C(t)}`, e.scalar === void 0 ? e.enum === void 0 ? `expected ${qe(e.message)}` + n : `expected ${e.enum.toString()}` + n : `expected ${Xe(e.scalar)}` + n;
}
function C(e) {
	switch (typeof e) {
		case "object": return e === null ? "null" : e instanceof Uint8Array ? `Uint8Array(${e.length})` : Array.isArray(e) ? `Array(${e.length})` : fe(e) ? Je(e.field()) : pe(e) ? Ye(e.field()) : me(e) ? qe(e.desc) : t(e) ? `message ${e.$typeName}` : "object";
		case "string": return e.length > 30 ? "string" : `"${e.split("\"").join("\\\"")}"`;
		case "boolean": return String(e);
		case "number": return String(e);
		case "bigint": return String(e) + "n";
		default: return typeof e;
	}
}
function qe(e) {
	return `ReflectMessage (${e.typeName})`;
}
function Je(e) {
	switch (e.listKind) {
		case "message": return `ReflectList (${e.message.toString()})`;
		case "enum": return `ReflectList (${e.enum.toString()})`;
		case "scalar": return `ReflectList (${n[e.scalar]})`;
	}
}
function Ye(e) {
	switch (e.mapKind) {
		case "message": return `ReflectMap (${n[e.mapKey]}, ${e.message.toString()})`;
		case "enum": return `ReflectMap (${n[e.mapKey]}, ${e.enum.toString()})`;
		case "scalar": return `ReflectMap (${n[e.mapKey]}, ${n[e.scalar]})`;
	}
}
function Xe(e) {
	switch (e) {
		case n.STRING: return "string";
		case n.BOOL: return "boolean";
		case n.INT64:
		case n.SINT64:
		case n.SFIXED64: return "bigint (int64)";
		case n.UINT64:
		case n.FIXED64: return "bigint (uint64)";
		case n.BYTES: return "Uint8Array";
		case n.DOUBLE: return "number (float64)";
		case n.FLOAT: return "number (float32)";
		case n.FIXED32:
		case n.UINT32: return "number (uint32)";
		case n.INT32:
		case n.SFIXED32:
		case n.SINT32: return "number (int32)";
	}
}
// ../../node_modules/@bufbuild/protobuf/dist/esm/reflect/reflect.js
var Ze = 0;
function w(e, t, n = !0) {
	return new $e(e, t, n);
}
var Qe = /* @__PURE__ */ new WeakMap(), $e = class {
	get sortedFields() {
		let e = Qe.get(this.desc);
		if (e) return e;
		let t = this.desc.fields.concat().sort((e, t) => e.number - t.number);
		return Qe.set(this.desc, t), t;
	}
	constructor(e, t, n = !0) {
		this.lists = /* @__PURE__ */ new Map(), this.maps = /* @__PURE__ */ new Map(), this.check = n, this.desc = e, this.message = this[h] = t ?? y(e), this.fields = e.fields, this.oneofs = e.oneofs, this.members = e.members;
	}
	findNumber(e) {
		return this._fieldsByNumber ||= new Map(this.desc.fields.map((e) => [e.number, e])), this._fieldsByNumber.get(e);
	}
	oneofCase(e) {
		return T(this.message, e), se(this.message, e);
	}
	isSet(e) {
		return T(this.message, e), ce(this.message, e);
	}
	clear(e) {
		T(this.message, e), de(this.message, e);
	}
	get(e) {
		T(this.message, e);
		let t = le(this.message, e);
		switch (e.fieldKind) {
			case "list":
				let n = this.lists.get(e);
				return n && n[h] === t || this.lists.set(e, n = new et(e, t, this.check)), n;
			case "map":
				let r = this.maps.get(e);
				return r && r[h] === t || this.maps.set(e, r = new tt(e, t, this.check)), r;
			case "message": return rt(e, t, this.check);
			case "scalar": return t === void 0 ? m(e.scalar, !1) : ut(e, t);
			case "enum": return t ?? e.enum.values[0].number;
		}
	}
	set(e, t) {
		if (T(this.message, e), this.check) {
			let n = S(e, t);
			if (n) throw n;
		}
		let n;
		n = e.fieldKind == "message" ? nt(e, t) : pe(t) || fe(t) ? t[h] : dt(e, t), ue(this.message, e, n);
	}
	getUnknown() {
		return this.message.$unknown;
	}
	setUnknown(e) {
		this.message.$unknown = e;
	}
};
function T(e, t) {
	if (t.parent.typeName !== e.$typeName) throw new b(t, `cannot use ${t.toString()} with message ${e.$typeName}`, "ForeignFieldError");
}
var et = class {
	field() {
		return this._field;
	}
	get size() {
		return this._arr.length;
	}
	constructor(e, t, n) {
		this._field = e, this._arr = this[h] = t, this.check = n;
	}
	get(e) {
		let t = this._arr[e];
		return t === void 0 ? void 0 : at(this._field, t, this.check);
	}
	set(e, t) {
		if (e < 0 || e >= this._arr.length) throw new b(this._field, `list item #${e + 1}: out of range`);
		if (this.check) {
			let n = He(this._field, e, t);
			if (n) throw n;
		}
		this._arr[e] = it(this._field, t);
	}
	add(e) {
		if (this.check) {
			let t = He(this._field, this._arr.length, e);
			if (t) throw t;
		}
		this._arr.push(it(this._field, e));
	}
	clear() {
		this._arr.splice(0, this._arr.length);
	}
	[Symbol.iterator]() {
		return this.values();
	}
	keys() {
		return this._arr.keys();
	}
	*values() {
		for (let e of this._arr) yield at(this._field, e, this.check);
	}
	*entries() {
		for (let e = 0; e < this._arr.length; e++) yield [e, at(this._field, this._arr[e], this.check)];
	}
}, tt = class {
	constructor(e, t, n = !0) {
		this.obj = this[h] = t ?? {}, this.check = n, this._field = e;
	}
	field() {
		return this._field;
	}
	set(e, t) {
		if (this.check) {
			let n = Ue(this._field, e, t);
			if (n) throw n;
		}
		return this.obj[ct(e)] = ot(this._field, t), this;
	}
	delete(e) {
		let t = ct(e), n = Object.prototype.hasOwnProperty.call(this.obj, t);
		return n && delete this.obj[t], n;
	}
	clear() {
		for (let e of Object.keys(this.obj)) delete this.obj[e];
	}
	get(e) {
		let t = this.obj[ct(e)];
		return t !== void 0 && (t = st(this._field, t, this.check)), t;
	}
	has(e) {
		return Object.prototype.hasOwnProperty.call(this.obj, ct(e));
	}
	*keys() {
		for (let e of Object.keys(this.obj)) yield lt(e, this._field.mapKey);
	}
	*entries() {
		for (let e of Object.entries(this.obj)) yield [lt(e[0], this._field.mapKey), st(this._field, e[1], this.check)];
	}
	[Symbol.iterator]() {
		return this.entries();
	}
	get size() {
		return Object.keys(this.obj).length;
	}
	*values() {
		for (let e of Object.values(this.obj)) yield st(this._field, e, this.check);
	}
	forEach(e, t) {
		for (let n of this.entries()) e.call(t, n[1], n[0], this);
	}
};
function nt(e, t) {
	return me(t) ? he(t.message) && !e.oneof && e.fieldKind == "message" ? t.message.value : t.desc.typeName == "google.protobuf.Struct" && e.parent.typeName != "google.protobuf.Value" ? pt(t.message) : t.message : t;
}
function rt(e, t, n) {
	return t !== void 0 && (v(e.message) && !e.oneof && e.fieldKind == "message" ? t = {
		$typeName: e.message.typeName,
		value: ut(e.message.fields[0], t)
	} : e.message.typeName == "google.protobuf.Struct" && e.parent.typeName != "google.protobuf.Value" && _(t) && (t = ft(t))), new $e(e.message, t, n);
}
function it(e, t) {
	return e.listKind == "message" ? nt(e, t) : dt(e, t);
}
function at(e, t, n) {
	return e.listKind == "message" ? rt(e, t, n) : ut(e, t);
}
function ot(e, t) {
	return e.mapKind == "message" ? nt(e, t) : dt(e, t);
}
function st(e, t, n) {
	return e.mapKind == "message" ? rt(e, t, n) : t;
}
function ct(e) {
	return typeof e == "string" || typeof e == "number" ? e : String(e);
}
function lt(e, t) {
	switch (t) {
		case n.STRING: return e;
		case n.INT32:
		case n.FIXED32:
		case n.UINT32:
		case n.SFIXED32:
		case n.SINT32: {
			let t = Number.parseInt(e);
			if (Number.isFinite(t)) return t;
			break;
		}
		case n.BOOL:
			switch (e) {
				case "true": return !0;
				case "false": return !1;
			}
			break;
		case n.UINT64:
		case n.FIXED64:
			try {
				return p.uParse(e);
			} catch {}
			break;
		default: try {
			return p.parse(e);
		} catch {}
	}
	return e;
}
function ut(e, t) {
	switch (e.scalar) {
		case n.INT64:
		case n.SFIXED64:
		case n.SINT64:
			"longAsString" in e && e.longAsString && typeof t == "string" && (t = p.parse(t));
			break;
		case n.FIXED64:
		case n.UINT64: "longAsString" in e && e.longAsString && typeof t == "string" && (t = p.uParse(t));
	}
	return t;
}
function dt(e, t) {
	switch (e.scalar) {
		case n.INT64:
		case n.SFIXED64:
		case n.SINT64:
			"longAsString" in e && e.longAsString ? t = String(t) : (typeof t == "string" || typeof t == "number") && (t = p.parse(t));
			break;
		case n.FIXED64:
		case n.UINT64: "longAsString" in e && e.longAsString ? t = String(t) : (typeof t == "string" || typeof t == "number") && (t = p.uParse(t));
	}
	return t;
}
function ft(e) {
	let t = {
		$typeName: "google.protobuf.Struct",
		fields: {}
	};
	if (_(e)) for (let [n, r] of Object.entries(e)) t.fields[n] = ht(r);
	return t;
}
function pt(e) {
	let t = {};
	for (let [n, r] of Object.entries(e.fields)) t[n] = mt(r);
	return t;
}
function mt(e) {
	switch (e.kind.case) {
		case "structValue": return pt(e.kind.value);
		case "listValue": return e.kind.value.values.map(mt);
		case "nullValue":
		case void 0: return null;
		default: return e.kind.value;
	}
}
function ht(e) {
	let t = {
		$typeName: "google.protobuf.Value",
		kind: { case: void 0 }
	};
	switch (typeof e) {
		case "number":
			t.kind = {
				case: "numberValue",
				value: e
			};
			break;
		case "string":
			t.kind = {
				case: "stringValue",
				value: e
			};
			break;
		case "boolean":
			t.kind = {
				case: "boolValue",
				value: e
			};
			break;
		case "object": if (e === null) t.kind = {
			case: "nullValue",
			value: Ze
		};
		else if (Array.isArray(e)) {
			let n = {
				$typeName: "google.protobuf.ListValue",
				values: []
			};
			if (Array.isArray(e)) for (let t of e) n.values.push(ht(t));
			t.kind = {
				case: "listValue",
				value: n
			};
		} else t.kind = {
			case: "structValue",
			value: ft(e)
		};
	}
	return t;
}
// ../../node_modules/@bufbuild/protobuf/dist/esm/wire/base64-encoding.js
function gt(e) {
	let t = xt(), n = e.length * 3 / 4;
	e[e.length - 2] == "=" ? n -= 2 : e[e.length - 1] == "=" && --n;
	let r = new Uint8Array(n), i = 0, a = 0, o, s = 0;
	for (let n = 0; n < e.length; n++) {
		if (o = t[e.charCodeAt(n)], o === void 0) switch (e[n]) {
			case "=": a = 0;
			case "\n":
			case "\r":
			case "	":
			case " ": continue;
			default: throw Error("invalid base64 string");
		}
		switch (a) {
			case 0:
				s = o, a = 1;
				break;
			case 1:
				r[i++] = s << 2 | (o & 48) >> 4, s = o, a = 2;
				break;
			case 2:
				r[i++] = (s & 15) << 4 | (o & 60) >> 2, s = o, a = 3;
				break;
			case 3: r[i++] = (s & 3) << 6 | o, a = 0;
		}
	}
	if (a == 1) throw Error("invalid base64 string");
	return r.subarray(0, i);
}
function _t(e, t = "std") {
	let n = bt(t), r = t == "std", i = "", a = 0, o, s = 0;
	for (let t = 0; t < e.length; t++) switch (o = e[t], a) {
		case 0:
			i += n[o >> 2], s = (o & 3) << 4, a = 1;
			break;
		case 1:
			i += n[s | o >> 4], s = (o & 15) << 2, a = 2;
			break;
		case 2: i += n[s | o >> 6], i += n[o & 63], a = 0;
	}
	return a && (i += n[s], r && (i += "=", a == 1 && (i += "="))), i;
}
var vt, yt, E;
function bt(e) {
	return vt || (vt = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".split(""), yt = vt.slice(0, -2).concat("-", "_")), e == "url" ? yt : vt;
}
function xt() {
	if (!E) {
		E = [];
		let e = bt("std");
		for (let t = 0; t < e.length; t++) E[e[t].charCodeAt(0)] = t;
		E[45] = e.indexOf("+"), E[95] = e.indexOf("/");
	}
	return E;
}
// ../../node_modules/@bufbuild/protobuf/dist/esm/reflect/names.js
function D(e) {
	let t = !1, n = [];
	for (let r = 0; r < e.length; r++) {
		let i = e.charAt(r);
		switch (i) {
			case "_":
				t = !0;
				break;
			case "0":
			case "1":
			case "2":
			case "3":
			case "4":
			case "5":
			case "6":
			case "7":
			case "8":
			case "9":
				n.push(i), t = !1;
				break;
			default: t && (t = !1, i = i.toUpperCase()), n.push(i);
		}
	}
	return n.join("");
}
function St(e) {
	return e.replace(/[A-Z]/g, (e) => "_" + e.toLowerCase());
}
var Ct = /* @__PURE__ */ new Set([
	"constructor",
	"toString",
	"toJSON",
	"valueOf"
]);
function O(e) {
	return Ct.has(e) ? e + "$" : e;
}
// ../../node_modules/@bufbuild/protobuf/dist/esm/codegenv2/restore-json-names.js
function wt(e) {
	for (let t of e.field) g(t, "jsonName") || (t.jsonName = D(t.name));
	e.nestedType.forEach(wt);
}
// ../../node_modules/@bufbuild/protobuf/dist/esm/wire/text-format.js
function Tt(e, t) {
	let n = e.values.find((e) => e.name === t);
	if (!n) throw Error(`cannot parse ${e} default value: ${t}`);
	return n.number;
}
function Et(e, t) {
	switch (e) {
		case n.STRING: return t;
		case n.BYTES: {
			let r = Dt(t);
			if (r === !1) throw Error(`cannot parse ${n[e]} default value: ${t}`);
			return r;
		}
		case n.INT64:
		case n.SFIXED64:
		case n.SINT64: return p.parse(t);
		case n.UINT64:
		case n.FIXED64: return p.uParse(t);
		case n.DOUBLE:
		case n.FLOAT: switch (t) {
			case "inf": return Infinity;
			case "-inf": return -Infinity;
			case "nan": return NaN;
			default: return parseFloat(t);
		}
		case n.BOOL: return t === "true";
		case n.INT32:
		case n.UINT32:
		case n.SINT32:
		case n.FIXED32:
		case n.SFIXED32: return parseInt(t, 10);
	}
}
function Dt(e) {
	let t = [], n = {
		tail: e,
		c: "",
		next() {
			return this.tail.length != 0 && (this.c = this.tail[0], this.tail = this.tail.substring(1), !0);
		},
		take(e) {
			if (this.tail.length >= e) {
				let t = this.tail.substring(0, e);
				return this.tail = this.tail.substring(e), t;
			}
			return !1;
		}
	};
	for (; n.next();) switch (n.c) {
		case "\\":
			if (n.next()) switch (n.c) {
				case "\\":
					t.push(n.c.charCodeAt(0));
					break;
				case "b":
					t.push(8);
					break;
				case "f":
					t.push(12);
					break;
				case "n":
					t.push(10);
					break;
				case "r":
					t.push(13);
					break;
				case "t":
					t.push(9);
					break;
				case "v":
					t.push(11);
					break;
				case "0":
				case "1":
				case "2":
				case "3":
				case "4":
				case "5":
				case "6":
				case "7": {
					let e = n.c, r = n.take(2);
					if (r === !1) return !1;
					let i = parseInt(e + r, 8);
					if (Number.isNaN(i)) return !1;
					t.push(i);
					break;
				}
				case "x": {
					let e = n.c, r = n.take(2);
					if (r === !1) return !1;
					let i = parseInt(e + r, 16);
					if (Number.isNaN(i)) return !1;
					t.push(i);
					break;
				}
				case "u": {
					let e = n.c, r = n.take(4);
					if (r === !1) return !1;
					let i = parseInt(e + r, 16);
					if (Number.isNaN(i)) return !1;
					let a = /* @__PURE__ */ new Uint8Array(4);
					new DataView(a.buffer).setInt32(0, i, !0), t.push(a[0], a[1], a[2], a[3]);
					break;
				}
				case "U": {
					let e = n.c, r = n.take(8);
					if (r === !1) return !1;
					let i = p.uEnc(e + r), a = /* @__PURE__ */ new Uint8Array(8), o = new DataView(a.buffer);
					o.setInt32(0, i.lo, !0), o.setInt32(4, i.hi, !0), t.push(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]);
					break;
				}
			}
			break;
		default: t.push(n.c.charCodeAt(0));
	}
	return new Uint8Array(t);
}
// ../../node_modules/@bufbuild/protobuf/dist/esm/reflect/nested-types.js
function* Ot(e) {
	switch (e.kind) {
		case "file":
			for (let t of e.messages) yield t, yield* Ot(t);
			yield* e.enums, yield* e.services, yield* e.extensions;
			break;
		case "message":
			for (let t of e.nestedMessages) yield t, yield* Ot(t);
			yield* e.nestedEnums, yield* e.nestedExtensions;
	}
}
// ../../node_modules/@bufbuild/protobuf/dist/esm/registry.js
function kt(...e) {
	let t = At();
	if (!e.length) return t;
	if ("$typeName" in e[0] && e[0].$typeName == "google.protobuf.FileDescriptorSet") {
		for (let n of e[0].file) Zt(n, t);
		return t;
	}
	if ("$typeName" in e[0]) {
		let n = e[0], r = e[1], i = /* @__PURE__ */ new Set();
		function a(e) {
			let n = [];
			for (let a of e.dependency) {
				if (t.getFile(a) != null || i.has(a)) continue;
				let o = r(a);
				if (!o) throw Error(`Unable to resolve ${a}, imported by ${e.name}`);
				"kind" in o ? t.addFile(o, !1, !0) : (i.add(o.name), n.push(o));
			}
			return n.concat(...n.map(a));
		}
		for (let e of [n, ...a(n)].reverse()) Zt(e, t);
	} else for (let n of e) for (let e of n.files) t.addFile(e);
	return t;
}
function At() {
	let e = /* @__PURE__ */ new Map(), t = /* @__PURE__ */ new Map(), n = /* @__PURE__ */ new Map();
	return {
		kind: "registry",
		types: e,
		extendees: t,
		[Symbol.iterator]() {
			return e.values();
		},
		get files() {
			return n.values();
		},
		addFile(e, t, r) {
			if (n.set(e.proto.name, e), !t) for (let t of Ot(e)) this.add(t);
			if (r) for (let n of e.dependencies) this.addFile(n, t, r);
		},
		add(n) {
			if (n.kind == "extension") {
				let e = t.get(n.extendee.typeName);
				e || t.set(n.extendee.typeName, e = /* @__PURE__ */ new Map()), e.set(n.number, n);
			}
			e.set(n.typeName, n);
		},
		get(t) {
			return e.get(t);
		},
		getFile(e) {
			return n.get(e);
		},
		getMessage(t) {
			let n = e.get(t);
			return n?.kind == "message" ? n : void 0;
		},
		getEnum(t) {
			let n = e.get(t);
			return n?.kind == "enum" ? n : void 0;
		},
		getExtension(t) {
			let n = e.get(t);
			return n?.kind == "extension" ? n : void 0;
		},
		getExtensionFor(e, n) {
			return t.get(e.typeName)?.get(n);
		},
		getService(t) {
			let n = e.get(t);
			return n?.kind == "service" ? n : void 0;
		}
	};
}
var jt = 998, Mt = 999, Nt = 9999, Pt = 9, k = 10, Ft = 11, It = 12, Lt = 14, Rt = 3, zt = 2, Bt = 1, Vt = 0, Ht = 1, Ut = 2, Wt = 3, Gt = 1, Kt = 2, qt = 1, Jt = 2, Yt = 1001, Xt = {
	998: {
		fieldPresence: 1,
		enumType: 2,
		repeatedFieldEncoding: 2,
		utf8Validation: 3,
		messageEncoding: 1,
		jsonFormat: 2,
		enforceNamingStyle: 2,
		defaultSymbolVisibility: 1
	},
	999: {
		fieldPresence: 2,
		enumType: 1,
		repeatedFieldEncoding: 1,
		utf8Validation: 2,
		messageEncoding: 1,
		jsonFormat: 1,
		enforceNamingStyle: 2,
		defaultSymbolVisibility: 1
	},
	1e3: {
		fieldPresence: 1,
		enumType: 1,
		repeatedFieldEncoding: 1,
		utf8Validation: 2,
		messageEncoding: 1,
		jsonFormat: 1,
		enforceNamingStyle: 2,
		defaultSymbolVisibility: 1
	},
	1001: {
		fieldPresence: 1,
		enumType: 1,
		repeatedFieldEncoding: 1,
		utf8Validation: 2,
		messageEncoding: 1,
		jsonFormat: 1,
		enforceNamingStyle: 1,
		defaultSymbolVisibility: 2
	}
};
function Zt(e, t) {
	let n = {
		kind: "file",
		proto: e,
		deprecated: e.options?.deprecated ?? !1,
		edition: sn(e),
		name: e.name.replace(/\.proto$/, ""),
		dependencies: cn(e, t),
		enums: [],
		messages: [],
		extensions: [],
		services: [],
		toString() {
			return `file ${e.name}`;
		}
	}, r = /* @__PURE__ */ new Map(), i = {
		get(e) {
			return r.get(e);
		},
		add(e) {
			M(e.proto.options?.mapEntry === !0), r.set(e.typeName, e);
		}
	};
	for (let r of e.enumType) en(r, n, void 0, t);
	for (let r of e.messageType) tn(r, n, void 0, t, i);
	for (let r of e.service) nn(r, n, t);
	Qt(n, t);
	for (let e of r.values()) $t(e, t, i);
	for (let e of n.messages) $t(e, t, i), Qt(e, t);
	t.addFile(n, !0);
}
function Qt(e, t) {
	switch (e.kind) {
		case "file":
			for (let n of e.proto.extension) {
				let r = on(n, e, t);
				e.extensions.push(r), t.add(r);
			}
			break;
		case "message":
			for (let n of e.proto.extension) {
				let r = on(n, e, t);
				e.nestedExtensions.push(r), t.add(r);
			}
			for (let n of e.nestedMessages) Qt(n, t);
	}
}
function $t(e, t, n) {
	let r = e.proto.oneofDecl.map((t) => an(t, e)), i = /* @__PURE__ */ new Set();
	for (let a of e.proto.field) {
		let o = fn(a, r), s = on(a, e, t, o, n);
		e.fields.push(s), e.field[s.localName] = s, o === void 0 ? e.members.push(s) : (o.fields.push(s), i.has(o) || (i.add(o), e.members.push(o)));
	}
	for (let t of r.filter((e) => i.has(e))) e.oneofs.push(t);
	for (let r of e.nestedMessages) $t(r, t, n);
}
function en(e, t, n, r) {
	let i = ln(e.name, e.value), a = {
		kind: "enum",
		proto: e,
		deprecated: e.options?.deprecated ?? !1,
		file: t,
		parent: n,
		open: !0,
		name: e.name,
		typeName: dn(e, n, t),
		value: {},
		values: [],
		sharedPrefix: i,
		toString() {
			return `enum ${this.typeName}`;
		}
	};
	a.open = gn(a), r.add(a);
	for (let t of e.value) {
		let e = t.name;
		a.values.push(a.value[t.number] = {
			kind: "enum_value",
			proto: t,
			deprecated: t.options?.deprecated ?? !1,
			parent: a,
			name: e,
			localName: O(i == null ? e : e.substring(i.length)),
			number: t.number,
			toString() {
				return `enum value ${a.typeName}.${e}`;
			}
		});
	}
	(n?.nestedEnums ?? t.enums).push(a);
}
function tn(e, t, n, r, i) {
	let a = {
		kind: "message",
		proto: e,
		deprecated: e.options?.deprecated ?? !1,
		file: t,
		parent: n,
		name: e.name,
		typeName: dn(e, n, t),
		fields: [],
		field: {},
		oneofs: [],
		members: [],
		nestedEnums: [],
		nestedMessages: [],
		nestedExtensions: [],
		toString() {
			return `message ${this.typeName}`;
		}
	};
	e.options?.mapEntry === !0 ? i.add(a) : ((n?.nestedMessages ?? t.messages).push(a), r.add(a));
	for (let n of e.enumType) en(n, t, a, r);
	for (let n of e.nestedType) tn(n, t, a, r, i);
}
function nn(e, t, n) {
	let r = {
		kind: "service",
		proto: e,
		deprecated: e.options?.deprecated ?? !1,
		file: t,
		name: e.name,
		typeName: dn(e, void 0, t),
		methods: [],
		method: {},
		toString() {
			return `service ${this.typeName}`;
		}
	};
	t.services.push(r), n.add(r);
	for (let t of e.method) {
		let e = rn(t, r, n);
		r.methods.push(e), r.method[e.localName] = e;
	}
}
function rn(e, t, n) {
	let r;
	r = e.clientStreaming && e.serverStreaming ? "bidi_streaming" : e.clientStreaming ? "client_streaming" : e.serverStreaming ? "server_streaming" : "unary";
	let i = n.getMessage(A(e.inputType)), a = n.getMessage(A(e.outputType));
	M(i, `invalid MethodDescriptorProto: input_type ${e.inputType} not found`), M(a, `invalid MethodDescriptorProto: output_type ${e.inputType} not found`);
	let o = e.name;
	return {
		kind: "rpc",
		proto: e,
		deprecated: e.options?.deprecated ?? !1,
		parent: t,
		name: o,
		localName: O(o.length ? O(o[0].toLowerCase() + o.substring(1)) : o),
		methodKind: r,
		input: i,
		output: a,
		idempotency: e.options?.idempotencyLevel ?? Vt,
		toString() {
			return `rpc ${t.typeName}.${o}`;
		}
	};
}
function an(e, t) {
	return {
		kind: "oneof",
		proto: e,
		deprecated: !1,
		parent: t,
		fields: [],
		name: e.name,
		localName: O(D(e.name)),
		toString() {
			return `oneof ${t.typeName}.${this.name}`;
		}
	};
}
function on(e, t, n, r, i) {
	let a = i === void 0, o = {
		kind: "field",
		proto: e,
		deprecated: e.options?.deprecated ?? !1,
		name: e.name,
		number: e.number,
		scalar: void 0,
		message: void 0,
		enum: void 0,
		presence: pn(e, r, a, t),
		utf8Validation: vn(e, t),
		listKind: void 0,
		mapKind: void 0,
		mapKey: void 0,
		delimitedEncoding: void 0,
		packed: void 0,
		longAsString: !1,
		getDefaultValue: void 0
	};
	if (a) {
		let r = t.kind == "file" ? t : t.file, i = t.kind == "file" ? void 0 : t, a = dn(e, i, r);
		o.kind = "extension", o.file = r, o.parent = i, o.oneof = void 0, o.typeName = a, o.jsonName = `[${a}]`, o.toString = () => `extension ${a}`;
		let s = n.getMessage(A(e.extendee));
		M(s, `invalid FieldDescriptorProto: extendee ${e.extendee} not found`), o.extendee = s;
	} else {
		let n = t;
		M(n.kind == "message"), o.parent = n, o.oneof = r, o.localName = r ? D(e.name) : O(D(e.name)), o.jsonName = e.jsonName, o.toString = () => `field ${n.typeName}.${e.name}`;
	}
	let s = e.label, c = e.type, l = e.options?.jstype;
	if (s === Rt) {
		let r = c == Ft ? i?.get(A(e.typeName)) : void 0;
		if (r) {
			o.fieldKind = "map";
			let { key: e, value: t } = hn(r);
			return o.mapKey = e.scalar, o.mapKind = t.fieldKind, o.message = t.message, o.delimitedEncoding = !1, o.enum = t.enum, o.scalar = t.scalar, o;
		}
		switch (o.fieldKind = "list", c) {
			case Ft:
			case k:
				o.listKind = "message", o.message = n.getMessage(A(e.typeName)), M(o.message), o.delimitedEncoding = _n(e, t);
				break;
			case Lt:
				o.listKind = "enum", o.enum = n.getEnum(A(e.typeName)), M(o.enum);
				break;
			default: o.listKind = "scalar", o.scalar = c, o.longAsString = l == Bt;
		}
		return o.packed = mn(e, t), o;
	}
	switch (c) {
		case Ft:
		case k:
			o.fieldKind = "message", o.message = n.getMessage(A(e.typeName)), M(o.message, `invalid FieldDescriptorProto: type_name ${e.typeName} not found`), o.delimitedEncoding = _n(e, t), o.getDefaultValue = () => void 0;
			break;
		case Lt: {
			let t = n.getEnum(A(e.typeName));
			M(t !== void 0, `invalid FieldDescriptorProto: type_name ${e.typeName} not found`), o.fieldKind = "enum", o.enum = n.getEnum(A(e.typeName)), o.getDefaultValue = () => g(e, "defaultValue") ? Tt(t, e.defaultValue) : void 0;
			break;
		}
		default: o.fieldKind = "scalar", o.scalar = c, o.longAsString = l == Bt, o.getDefaultValue = () => g(e, "defaultValue") ? Et(c, e.defaultValue) : void 0;
	}
	return o;
}
function sn(e) {
	switch (e.syntax) {
		case "":
		case "proto2": return jt;
		case "proto3": return Mt;
		case "editions":
			if (e.edition === Nt) return Yt;
			if (e.edition in Xt) return e.edition;
			throw Error(`${e.name}: unsupported edition`);
		default: throw Error(`${e.name}: unsupported syntax "${e.syntax}"`);
	}
}
function cn(e, t) {
	return e.dependency.map((n) => {
		let r = t.getFile(n);
		if (!r) throw Error(`Cannot find ${n}, imported by ${e.name}`);
		return r;
	});
}
function ln(e, t) {
	let n = un(e) + "_";
	for (let e of t) {
		if (!e.name.toLowerCase().startsWith(n)) return;
		let t = e.name.substring(n.length);
		if (t.length == 0 || /^\d/.test(t)) return;
	}
	return n;
}
function un(e) {
	return (e.substring(0, 1) + e.substring(1).replace(/[A-Z]/g, (e) => "_" + e)).toLowerCase();
}
function dn(e, t, n) {
	let r;
	return r = t ? `${t.typeName}.${e.name}` : n.proto.package.length > 0 ? `${n.proto.package}.${e.name}` : `${e.name}`, r;
}
function A(e) {
	return e.startsWith(".") ? e.substring(1) : e;
}
function fn(e, t) {
	if (!g(e, "oneofIndex") || e.proto3Optional) return;
	let n = t[e.oneofIndex];
	return M(n, `invalid FieldDescriptorProto: oneof #${e.oneofIndex} for field #${e.number} not found`), n;
}
function pn(e, t, n, r) {
	if (e.label == zt) return Wt;
	if (e.label == Rt) return Ut;
	if (t || e.proto3Optional || n) return Ht;
	let i = j("fieldPresence", {
		proto: e,
		parent: r
	});
	return i == Ut && (e.type == Ft || e.type == k) ? Ht : i;
}
function mn(e, t) {
	if (e.label != Rt) return !1;
	switch (e.type) {
		case Pt:
		case It:
		case k:
		case Ft: return !1;
	}
	let n = e.options;
	return n && g(n, "packed") ? n.packed : Gt == j("repeatedFieldEncoding", {
		proto: e,
		parent: t
	});
}
function hn(e) {
	let t = e.fields.find((e) => e.number === 1), r = e.fields.find((e) => e.number === 2);
	return M(t && t.fieldKind == "scalar" && t.scalar != n.BYTES && t.scalar != n.FLOAT && t.scalar != n.DOUBLE && r && r.fieldKind != "list" && r.fieldKind != "map"), {
		key: t,
		value: r
	};
}
function gn(e) {
	return qt == j("enumType", {
		proto: e.proto,
		parent: e.parent ?? e.file
	});
}
function _n(e, t) {
	return e.type == k || Kt == j("messageEncoding", {
		proto: e,
		parent: t
	});
}
function vn(e, t) {
	return Jt == j("utf8Validation", {
		proto: e,
		parent: t
	});
}
function j(e, t) {
	let n = t.proto.options?.features;
	if (n) {
		let t = n[e];
		if (t != 0) return t;
	}
	if ("kind" in t) {
		if (t.kind == "message") return j(e, t.parent ?? t.file);
		let n = Xt[t.edition];
		if (!n) throw Error(`feature default for edition ${t.edition} not found`);
		return n[e];
	}
	return j(e, t.parent);
}
function M(e, t) {
	if (!e) throw Error(t);
}
// ../../node_modules/@bufbuild/protobuf/dist/esm/codegenv2/boot.js
function yn(e) {
	let t = bn(e);
	return t.messageType.forEach(wt), kt(t, () => void 0).getFile(t.name);
}
function bn(e) {
	return Object.assign(Object.create({
		syntax: "",
		edition: 0
	}), Object.assign(Object.assign({
		$typeName: "google.protobuf.FileDescriptorProto",
		dependency: [],
		publicDependency: [],
		weakDependency: [],
		optionDependency: [],
		service: [],
		extension: []
	}, e), {
		messageType: e.messageType.map(xn),
		enumType: e.enumType.map(wn)
	}));
}
function xn(e) {
	return Object.assign(Object.create({ visibility: 0 }), {
		$typeName: "google.protobuf.DescriptorProto",
		name: e.name,
		field: e.field?.map(Sn) ?? [],
		extension: [],
		nestedType: e.nestedType?.map(xn) ?? [],
		enumType: e.enumType?.map(wn) ?? [],
		extensionRange: e.extensionRange?.map((e) => Object.assign({ $typeName: "google.protobuf.DescriptorProto.ExtensionRange" }, e)) ?? [],
		oneofDecl: [],
		reservedRange: [],
		reservedName: []
	});
}
function Sn(e) {
	return Object.assign(Object.create({
		label: 1,
		typeName: "",
		extendee: "",
		defaultValue: "",
		oneofIndex: 0,
		jsonName: "",
		proto3Optional: !1
	}), Object.assign(Object.assign({ $typeName: "google.protobuf.FieldDescriptorProto" }, e), { options: e.options ? Cn(e.options) : void 0 }));
}
function Cn(e) {
	return Object.assign(Object.create({
		ctype: 0,
		packed: !1,
		jstype: 0,
		lazy: !1,
		unverifiedLazy: !1,
		deprecated: !1,
		weak: !1,
		debugRedact: !1,
		retention: 0
	}), Object.assign(Object.assign({ $typeName: "google.protobuf.FieldOptions" }, e), {
		targets: e.targets ?? [],
		editionDefaults: e.editionDefaults?.map((e) => Object.assign({ $typeName: "google.protobuf.FieldOptions.EditionDefault" }, e)) ?? [],
		uninterpretedOption: []
	}));
}
function wn(e) {
	return Object.assign(Object.create({ visibility: 0 }), {
		$typeName: "google.protobuf.EnumDescriptorProto",
		name: e.name,
		reservedName: [],
		reservedRange: [],
		value: e.value.map((e) => Object.assign({ $typeName: "google.protobuf.EnumValueDescriptorProto" }, e))
	});
}
// ../../node_modules/@bufbuild/protobuf/dist/esm/codegenv2/message.js
function N(e, t, ...n) {
	return n.reduce((e, t) => e.nestedMessages[t], e.messages[t]);
}
// ../../node_modules/@bufbuild/protobuf/dist/esm/codegenv2/enum.js
function Tn(e, t, ...n) {
	if (n.length == 0) return e.enums[t];
	let r = n.pop();
	return n.reduce((e, t) => e.nestedMessages[t], e.messages[t]).nestedEnums[r];
}
function En(e) {
	let t = {};
	for (let n of e.values) t[n.localName] = n.number, t[n.number] = n.localName;
	return t;
}
var Dn = /*@__PURE__*/ N(/* @__PURE__ */ yn({
	name: "google/protobuf/descriptor.proto",
	package: "google.protobuf",
	messageType: [
		{
			name: "FileDescriptorSet",
			field: [{
				name: "file",
				number: 1,
				type: 11,
				label: 3,
				typeName: ".google.protobuf.FileDescriptorProto"
			}],
			extensionRange: [{
				start: 536e6,
				end: 536000001
			}]
		},
		{
			name: "FileDescriptorProto",
			field: [
				{
					name: "name",
					number: 1,
					type: 9,
					label: 1
				},
				{
					name: "package",
					number: 2,
					type: 9,
					label: 1
				},
				{
					name: "dependency",
					number: 3,
					type: 9,
					label: 3
				},
				{
					name: "public_dependency",
					number: 10,
					type: 5,
					label: 3
				},
				{
					name: "weak_dependency",
					number: 11,
					type: 5,
					label: 3
				},
				{
					name: "option_dependency",
					number: 15,
					type: 9,
					label: 3
				},
				{
					name: "message_type",
					number: 4,
					type: 11,
					label: 3,
					typeName: ".google.protobuf.DescriptorProto"
				},
				{
					name: "enum_type",
					number: 5,
					type: 11,
					label: 3,
					typeName: ".google.protobuf.EnumDescriptorProto"
				},
				{
					name: "service",
					number: 6,
					type: 11,
					label: 3,
					typeName: ".google.protobuf.ServiceDescriptorProto"
				},
				{
					name: "extension",
					number: 7,
					type: 11,
					label: 3,
					typeName: ".google.protobuf.FieldDescriptorProto"
				},
				{
					name: "options",
					number: 8,
					type: 11,
					label: 1,
					typeName: ".google.protobuf.FileOptions"
				},
				{
					name: "source_code_info",
					number: 9,
					type: 11,
					label: 1,
					typeName: ".google.protobuf.SourceCodeInfo"
				},
				{
					name: "syntax",
					number: 12,
					type: 9,
					label: 1
				},
				{
					name: "edition",
					number: 14,
					type: 14,
					label: 1,
					typeName: ".google.protobuf.Edition"
				}
			]
		},
		{
			name: "DescriptorProto",
			field: [
				{
					name: "name",
					number: 1,
					type: 9,
					label: 1
				},
				{
					name: "field",
					number: 2,
					type: 11,
					label: 3,
					typeName: ".google.protobuf.FieldDescriptorProto"
				},
				{
					name: "extension",
					number: 6,
					type: 11,
					label: 3,
					typeName: ".google.protobuf.FieldDescriptorProto"
				},
				{
					name: "nested_type",
					number: 3,
					type: 11,
					label: 3,
					typeName: ".google.protobuf.DescriptorProto"
				},
				{
					name: "enum_type",
					number: 4,
					type: 11,
					label: 3,
					typeName: ".google.protobuf.EnumDescriptorProto"
				},
				{
					name: "extension_range",
					number: 5,
					type: 11,
					label: 3,
					typeName: ".google.protobuf.DescriptorProto.ExtensionRange"
				},
				{
					name: "oneof_decl",
					number: 8,
					type: 11,
					label: 3,
					typeName: ".google.protobuf.OneofDescriptorProto"
				},
				{
					name: "options",
					number: 7,
					type: 11,
					label: 1,
					typeName: ".google.protobuf.MessageOptions"
				},
				{
					name: "reserved_range",
					number: 9,
					type: 11,
					label: 3,
					typeName: ".google.protobuf.DescriptorProto.ReservedRange"
				},
				{
					name: "reserved_name",
					number: 10,
					type: 9,
					label: 3
				},
				{
					name: "visibility",
					number: 11,
					type: 14,
					label: 1,
					typeName: ".google.protobuf.SymbolVisibility"
				}
			],
			nestedType: [{
				name: "ExtensionRange",
				field: [
					{
						name: "start",
						number: 1,
						type: 5,
						label: 1
					},
					{
						name: "end",
						number: 2,
						type: 5,
						label: 1
					},
					{
						name: "options",
						number: 3,
						type: 11,
						label: 1,
						typeName: ".google.protobuf.ExtensionRangeOptions"
					}
				]
			}, {
				name: "ReservedRange",
				field: [{
					name: "start",
					number: 1,
					type: 5,
					label: 1
				}, {
					name: "end",
					number: 2,
					type: 5,
					label: 1
				}]
			}]
		},
		{
			name: "ExtensionRangeOptions",
			field: [
				{
					name: "uninterpreted_option",
					number: 999,
					type: 11,
					label: 3,
					typeName: ".google.protobuf.UninterpretedOption"
				},
				{
					name: "declaration",
					number: 2,
					type: 11,
					label: 3,
					typeName: ".google.protobuf.ExtensionRangeOptions.Declaration",
					options: { retention: 2 }
				},
				{
					name: "features",
					number: 50,
					type: 11,
					label: 1,
					typeName: ".google.protobuf.FeatureSet"
				},
				{
					name: "verification",
					number: 3,
					type: 14,
					label: 1,
					typeName: ".google.protobuf.ExtensionRangeOptions.VerificationState",
					defaultValue: "UNVERIFIED",
					options: { retention: 2 }
				}
			],
			nestedType: [{
				name: "Declaration",
				field: [
					{
						name: "number",
						number: 1,
						type: 5,
						label: 1
					},
					{
						name: "full_name",
						number: 2,
						type: 9,
						label: 1
					},
					{
						name: "type",
						number: 3,
						type: 9,
						label: 1
					},
					{
						name: "reserved",
						number: 5,
						type: 8,
						label: 1
					},
					{
						name: "repeated",
						number: 6,
						type: 8,
						label: 1
					}
				]
			}],
			enumType: [{
				name: "VerificationState",
				value: [{
					name: "DECLARATION",
					number: 0
				}, {
					name: "UNVERIFIED",
					number: 1
				}]
			}],
			extensionRange: [{
				start: 1e3,
				end: 536870912
			}]
		},
		{
			name: "FieldDescriptorProto",
			field: [
				{
					name: "name",
					number: 1,
					type: 9,
					label: 1
				},
				{
					name: "number",
					number: 3,
					type: 5,
					label: 1
				},
				{
					name: "label",
					number: 4,
					type: 14,
					label: 1,
					typeName: ".google.protobuf.FieldDescriptorProto.Label"
				},
				{
					name: "type",
					number: 5,
					type: 14,
					label: 1,
					typeName: ".google.protobuf.FieldDescriptorProto.Type"
				},
				{
					name: "type_name",
					number: 6,
					type: 9,
					label: 1
				},
				{
					name: "extendee",
					number: 2,
					type: 9,
					label: 1
				},
				{
					name: "default_value",
					number: 7,
					type: 9,
					label: 1
				},
				{
					name: "oneof_index",
					number: 9,
					type: 5,
					label: 1
				},
				{
					name: "json_name",
					number: 10,
					type: 9,
					label: 1
				},
				{
					name: "options",
					number: 8,
					type: 11,
					label: 1,
					typeName: ".google.protobuf.FieldOptions"
				},
				{
					name: "proto3_optional",
					number: 17,
					type: 8,
					label: 1
				}
			],
			enumType: [{
				name: "Type",
				value: [
					{
						name: "TYPE_DOUBLE",
						number: 1
					},
					{
						name: "TYPE_FLOAT",
						number: 2
					},
					{
						name: "TYPE_INT64",
						number: 3
					},
					{
						name: "TYPE_UINT64",
						number: 4
					},
					{
						name: "TYPE_INT32",
						number: 5
					},
					{
						name: "TYPE_FIXED64",
						number: 6
					},
					{
						name: "TYPE_FIXED32",
						number: 7
					},
					{
						name: "TYPE_BOOL",
						number: 8
					},
					{
						name: "TYPE_STRING",
						number: 9
					},
					{
						name: "TYPE_GROUP",
						number: 10
					},
					{
						name: "TYPE_MESSAGE",
						number: 11
					},
					{
						name: "TYPE_BYTES",
						number: 12
					},
					{
						name: "TYPE_UINT32",
						number: 13
					},
					{
						name: "TYPE_ENUM",
						number: 14
					},
					{
						name: "TYPE_SFIXED32",
						number: 15
					},
					{
						name: "TYPE_SFIXED64",
						number: 16
					},
					{
						name: "TYPE_SINT32",
						number: 17
					},
					{
						name: "TYPE_SINT64",
						number: 18
					}
				]
			}, {
				name: "Label",
				value: [
					{
						name: "LABEL_OPTIONAL",
						number: 1
					},
					{
						name: "LABEL_REPEATED",
						number: 3
					},
					{
						name: "LABEL_REQUIRED",
						number: 2
					}
				]
			}]
		},
		{
			name: "OneofDescriptorProto",
			field: [{
				name: "name",
				number: 1,
				type: 9,
				label: 1
			}, {
				name: "options",
				number: 2,
				type: 11,
				label: 1,
				typeName: ".google.protobuf.OneofOptions"
			}]
		},
		{
			name: "EnumDescriptorProto",
			field: [
				{
					name: "name",
					number: 1,
					type: 9,
					label: 1
				},
				{
					name: "value",
					number: 2,
					type: 11,
					label: 3,
					typeName: ".google.protobuf.EnumValueDescriptorProto"
				},
				{
					name: "options",
					number: 3,
					type: 11,
					label: 1,
					typeName: ".google.protobuf.EnumOptions"
				},
				{
					name: "reserved_range",
					number: 4,
					type: 11,
					label: 3,
					typeName: ".google.protobuf.EnumDescriptorProto.EnumReservedRange"
				},
				{
					name: "reserved_name",
					number: 5,
					type: 9,
					label: 3
				},
				{
					name: "visibility",
					number: 6,
					type: 14,
					label: 1,
					typeName: ".google.protobuf.SymbolVisibility"
				}
			],
			nestedType: [{
				name: "EnumReservedRange",
				field: [{
					name: "start",
					number: 1,
					type: 5,
					label: 1
				}, {
					name: "end",
					number: 2,
					type: 5,
					label: 1
				}]
			}]
		},
		{
			name: "EnumValueDescriptorProto",
			field: [
				{
					name: "name",
					number: 1,
					type: 9,
					label: 1
				},
				{
					name: "number",
					number: 2,
					type: 5,
					label: 1
				},
				{
					name: "options",
					number: 3,
					type: 11,
					label: 1,
					typeName: ".google.protobuf.EnumValueOptions"
				}
			]
		},
		{
			name: "ServiceDescriptorProto",
			field: [
				{
					name: "name",
					number: 1,
					type: 9,
					label: 1
				},
				{
					name: "method",
					number: 2,
					type: 11,
					label: 3,
					typeName: ".google.protobuf.MethodDescriptorProto"
				},
				{
					name: "options",
					number: 3,
					type: 11,
					label: 1,
					typeName: ".google.protobuf.ServiceOptions"
				}
			]
		},
		{
			name: "MethodDescriptorProto",
			field: [
				{
					name: "name",
					number: 1,
					type: 9,
					label: 1
				},
				{
					name: "input_type",
					number: 2,
					type: 9,
					label: 1
				},
				{
					name: "output_type",
					number: 3,
					type: 9,
					label: 1
				},
				{
					name: "options",
					number: 4,
					type: 11,
					label: 1,
					typeName: ".google.protobuf.MethodOptions"
				},
				{
					name: "client_streaming",
					number: 5,
					type: 8,
					label: 1,
					defaultValue: "false"
				},
				{
					name: "server_streaming",
					number: 6,
					type: 8,
					label: 1,
					defaultValue: "false"
				}
			]
		},
		{
			name: "FileOptions",
			field: [
				{
					name: "java_package",
					number: 1,
					type: 9,
					label: 1
				},
				{
					name: "java_outer_classname",
					number: 8,
					type: 9,
					label: 1
				},
				{
					name: "java_multiple_files",
					number: 10,
					type: 8,
					label: 1,
					defaultValue: "false",
					options: {}
				},
				{
					name: "java_generate_equals_and_hash",
					number: 20,
					type: 8,
					label: 1,
					options: { deprecated: !0 }
				},
				{
					name: "java_string_check_utf8",
					number: 27,
					type: 8,
					label: 1,
					defaultValue: "false"
				},
				{
					name: "optimize_for",
					number: 9,
					type: 14,
					label: 1,
					typeName: ".google.protobuf.FileOptions.OptimizeMode",
					defaultValue: "SPEED"
				},
				{
					name: "go_package",
					number: 11,
					type: 9,
					label: 1
				},
				{
					name: "cc_generic_services",
					number: 16,
					type: 8,
					label: 1,
					defaultValue: "false"
				},
				{
					name: "java_generic_services",
					number: 17,
					type: 8,
					label: 1,
					defaultValue: "false"
				},
				{
					name: "py_generic_services",
					number: 18,
					type: 8,
					label: 1,
					defaultValue: "false"
				},
				{
					name: "deprecated",
					number: 23,
					type: 8,
					label: 1,
					defaultValue: "false"
				},
				{
					name: "cc_enable_arenas",
					number: 31,
					type: 8,
					label: 1,
					defaultValue: "true"
				},
				{
					name: "objc_class_prefix",
					number: 36,
					type: 9,
					label: 1
				},
				{
					name: "csharp_namespace",
					number: 37,
					type: 9,
					label: 1
				},
				{
					name: "swift_prefix",
					number: 39,
					type: 9,
					label: 1
				},
				{
					name: "php_class_prefix",
					number: 40,
					type: 9,
					label: 1
				},
				{
					name: "php_namespace",
					number: 41,
					type: 9,
					label: 1
				},
				{
					name: "php_metadata_namespace",
					number: 44,
					type: 9,
					label: 1
				},
				{
					name: "ruby_package",
					number: 45,
					type: 9,
					label: 1
				},
				{
					name: "features",
					number: 50,
					type: 11,
					label: 1,
					typeName: ".google.protobuf.FeatureSet"
				},
				{
					name: "uninterpreted_option",
					number: 999,
					type: 11,
					label: 3,
					typeName: ".google.protobuf.UninterpretedOption"
				}
			],
			enumType: [{
				name: "OptimizeMode",
				value: [
					{
						name: "SPEED",
						number: 1
					},
					{
						name: "CODE_SIZE",
						number: 2
					},
					{
						name: "LITE_RUNTIME",
						number: 3
					}
				]
			}],
			extensionRange: [{
				start: 1e3,
				end: 536870912
			}]
		},
		{
			name: "MessageOptions",
			field: [
				{
					name: "message_set_wire_format",
					number: 1,
					type: 8,
					label: 1,
					defaultValue: "false"
				},
				{
					name: "no_standard_descriptor_accessor",
					number: 2,
					type: 8,
					label: 1,
					defaultValue: "false"
				},
				{
					name: "deprecated",
					number: 3,
					type: 8,
					label: 1,
					defaultValue: "false"
				},
				{
					name: "map_entry",
					number: 7,
					type: 8,
					label: 1
				},
				{
					name: "deprecated_legacy_json_field_conflicts",
					number: 11,
					type: 8,
					label: 1,
					options: { deprecated: !0 }
				},
				{
					name: "features",
					number: 12,
					type: 11,
					label: 1,
					typeName: ".google.protobuf.FeatureSet"
				},
				{
					name: "uninterpreted_option",
					number: 999,
					type: 11,
					label: 3,
					typeName: ".google.protobuf.UninterpretedOption"
				}
			],
			extensionRange: [{
				start: 1e3,
				end: 536870912
			}]
		},
		{
			name: "FieldOptions",
			field: [
				{
					name: "ctype",
					number: 1,
					type: 14,
					label: 1,
					typeName: ".google.protobuf.FieldOptions.CType",
					defaultValue: "STRING"
				},
				{
					name: "packed",
					number: 2,
					type: 8,
					label: 1
				},
				{
					name: "jstype",
					number: 6,
					type: 14,
					label: 1,
					typeName: ".google.protobuf.FieldOptions.JSType",
					defaultValue: "JS_NORMAL"
				},
				{
					name: "lazy",
					number: 5,
					type: 8,
					label: 1,
					defaultValue: "false"
				},
				{
					name: "unverified_lazy",
					number: 15,
					type: 8,
					label: 1,
					defaultValue: "false"
				},
				{
					name: "deprecated",
					number: 3,
					type: 8,
					label: 1,
					defaultValue: "false"
				},
				{
					name: "weak",
					number: 10,
					type: 8,
					label: 1,
					defaultValue: "false",
					options: { deprecated: !0 }
				},
				{
					name: "debug_redact",
					number: 16,
					type: 8,
					label: 1,
					defaultValue: "false"
				},
				{
					name: "retention",
					number: 17,
					type: 14,
					label: 1,
					typeName: ".google.protobuf.FieldOptions.OptionRetention"
				},
				{
					name: "targets",
					number: 19,
					type: 14,
					label: 3,
					typeName: ".google.protobuf.FieldOptions.OptionTargetType"
				},
				{
					name: "edition_defaults",
					number: 20,
					type: 11,
					label: 3,
					typeName: ".google.protobuf.FieldOptions.EditionDefault"
				},
				{
					name: "features",
					number: 21,
					type: 11,
					label: 1,
					typeName: ".google.protobuf.FeatureSet"
				},
				{
					name: "feature_support",
					number: 22,
					type: 11,
					label: 1,
					typeName: ".google.protobuf.FieldOptions.FeatureSupport"
				},
				{
					name: "uninterpreted_option",
					number: 999,
					type: 11,
					label: 3,
					typeName: ".google.protobuf.UninterpretedOption"
				}
			],
			nestedType: [{
				name: "EditionDefault",
				field: [{
					name: "edition",
					number: 3,
					type: 14,
					label: 1,
					typeName: ".google.protobuf.Edition"
				}, {
					name: "value",
					number: 2,
					type: 9,
					label: 1
				}]
			}, {
				name: "FeatureSupport",
				field: [
					{
						name: "edition_introduced",
						number: 1,
						type: 14,
						label: 1,
						typeName: ".google.protobuf.Edition"
					},
					{
						name: "edition_deprecated",
						number: 2,
						type: 14,
						label: 1,
						typeName: ".google.protobuf.Edition"
					},
					{
						name: "deprecation_warning",
						number: 3,
						type: 9,
						label: 1
					},
					{
						name: "edition_removed",
						number: 4,
						type: 14,
						label: 1,
						typeName: ".google.protobuf.Edition"
					},
					{
						name: "removal_error",
						number: 5,
						type: 9,
						label: 1
					}
				]
			}],
			enumType: [
				{
					name: "CType",
					value: [
						{
							name: "STRING",
							number: 0
						},
						{
							name: "CORD",
							number: 1
						},
						{
							name: "STRING_PIECE",
							number: 2
						}
					]
				},
				{
					name: "JSType",
					value: [
						{
							name: "JS_NORMAL",
							number: 0
						},
						{
							name: "JS_STRING",
							number: 1
						},
						{
							name: "JS_NUMBER",
							number: 2
						}
					]
				},
				{
					name: "OptionRetention",
					value: [
						{
							name: "RETENTION_UNKNOWN",
							number: 0
						},
						{
							name: "RETENTION_RUNTIME",
							number: 1
						},
						{
							name: "RETENTION_SOURCE",
							number: 2
						}
					]
				},
				{
					name: "OptionTargetType",
					value: [
						{
							name: "TARGET_TYPE_UNKNOWN",
							number: 0
						},
						{
							name: "TARGET_TYPE_FILE",
							number: 1
						},
						{
							name: "TARGET_TYPE_EXTENSION_RANGE",
							number: 2
						},
						{
							name: "TARGET_TYPE_MESSAGE",
							number: 3
						},
						{
							name: "TARGET_TYPE_FIELD",
							number: 4
						},
						{
							name: "TARGET_TYPE_ONEOF",
							number: 5
						},
						{
							name: "TARGET_TYPE_ENUM",
							number: 6
						},
						{
							name: "TARGET_TYPE_ENUM_ENTRY",
							number: 7
						},
						{
							name: "TARGET_TYPE_SERVICE",
							number: 8
						},
						{
							name: "TARGET_TYPE_METHOD",
							number: 9
						}
					]
				}
			],
			extensionRange: [{
				start: 1e3,
				end: 536870912
			}]
		},
		{
			name: "OneofOptions",
			field: [{
				name: "features",
				number: 1,
				type: 11,
				label: 1,
				typeName: ".google.protobuf.FeatureSet"
			}, {
				name: "uninterpreted_option",
				number: 999,
				type: 11,
				label: 3,
				typeName: ".google.protobuf.UninterpretedOption"
			}],
			extensionRange: [{
				start: 1e3,
				end: 536870912
			}]
		},
		{
			name: "EnumOptions",
			field: [
				{
					name: "allow_alias",
					number: 2,
					type: 8,
					label: 1
				},
				{
					name: "deprecated",
					number: 3,
					type: 8,
					label: 1,
					defaultValue: "false"
				},
				{
					name: "deprecated_legacy_json_field_conflicts",
					number: 6,
					type: 8,
					label: 1,
					options: { deprecated: !0 }
				},
				{
					name: "features",
					number: 7,
					type: 11,
					label: 1,
					typeName: ".google.protobuf.FeatureSet"
				},
				{
					name: "uninterpreted_option",
					number: 999,
					type: 11,
					label: 3,
					typeName: ".google.protobuf.UninterpretedOption"
				}
			],
			extensionRange: [{
				start: 1e3,
				end: 536870912
			}]
		},
		{
			name: "EnumValueOptions",
			field: [
				{
					name: "deprecated",
					number: 1,
					type: 8,
					label: 1,
					defaultValue: "false"
				},
				{
					name: "features",
					number: 2,
					type: 11,
					label: 1,
					typeName: ".google.protobuf.FeatureSet"
				},
				{
					name: "debug_redact",
					number: 3,
					type: 8,
					label: 1,
					defaultValue: "false"
				},
				{
					name: "feature_support",
					number: 4,
					type: 11,
					label: 1,
					typeName: ".google.protobuf.FieldOptions.FeatureSupport"
				},
				{
					name: "uninterpreted_option",
					number: 999,
					type: 11,
					label: 3,
					typeName: ".google.protobuf.UninterpretedOption"
				}
			],
			extensionRange: [{
				start: 1e3,
				end: 536870912
			}]
		},
		{
			name: "ServiceOptions",
			field: [
				{
					name: "features",
					number: 34,
					type: 11,
					label: 1,
					typeName: ".google.protobuf.FeatureSet"
				},
				{
					name: "deprecated",
					number: 33,
					type: 8,
					label: 1,
					defaultValue: "false"
				},
				{
					name: "uninterpreted_option",
					number: 999,
					type: 11,
					label: 3,
					typeName: ".google.protobuf.UninterpretedOption"
				}
			],
			extensionRange: [{
				start: 1e3,
				end: 536870912
			}]
		},
		{
			name: "MethodOptions",
			field: [
				{
					name: "deprecated",
					number: 33,
					type: 8,
					label: 1,
					defaultValue: "false"
				},
				{
					name: "idempotency_level",
					number: 34,
					type: 14,
					label: 1,
					typeName: ".google.protobuf.MethodOptions.IdempotencyLevel",
					defaultValue: "IDEMPOTENCY_UNKNOWN"
				},
				{
					name: "features",
					number: 35,
					type: 11,
					label: 1,
					typeName: ".google.protobuf.FeatureSet"
				},
				{
					name: "uninterpreted_option",
					number: 999,
					type: 11,
					label: 3,
					typeName: ".google.protobuf.UninterpretedOption"
				}
			],
			enumType: [{
				name: "IdempotencyLevel",
				value: [
					{
						name: "IDEMPOTENCY_UNKNOWN",
						number: 0
					},
					{
						name: "NO_SIDE_EFFECTS",
						number: 1
					},
					{
						name: "IDEMPOTENT",
						number: 2
					}
				]
			}],
			extensionRange: [{
				start: 1e3,
				end: 536870912
			}]
		},
		{
			name: "UninterpretedOption",
			field: [
				{
					name: "name",
					number: 2,
					type: 11,
					label: 3,
					typeName: ".google.protobuf.UninterpretedOption.NamePart"
				},
				{
					name: "identifier_value",
					number: 3,
					type: 9,
					label: 1
				},
				{
					name: "positive_int_value",
					number: 4,
					type: 4,
					label: 1
				},
				{
					name: "negative_int_value",
					number: 5,
					type: 3,
					label: 1
				},
				{
					name: "double_value",
					number: 6,
					type: 1,
					label: 1
				},
				{
					name: "string_value",
					number: 7,
					type: 12,
					label: 1
				},
				{
					name: "aggregate_value",
					number: 8,
					type: 9,
					label: 1
				}
			],
			nestedType: [{
				name: "NamePart",
				field: [{
					name: "name_part",
					number: 1,
					type: 9,
					label: 2
				}, {
					name: "is_extension",
					number: 2,
					type: 8,
					label: 2
				}]
			}]
		},
		{
			name: "FeatureSet",
			field: [
				{
					name: "field_presence",
					number: 1,
					type: 14,
					label: 1,
					typeName: ".google.protobuf.FeatureSet.FieldPresence",
					options: {
						retention: 1,
						targets: [4, 1],
						editionDefaults: [
							{
								value: "EXPLICIT",
								edition: 900
							},
							{
								value: "IMPLICIT",
								edition: 999
							},
							{
								value: "EXPLICIT",
								edition: 1e3
							}
						]
					}
				},
				{
					name: "enum_type",
					number: 2,
					type: 14,
					label: 1,
					typeName: ".google.protobuf.FeatureSet.EnumType",
					options: {
						retention: 1,
						targets: [6, 1],
						editionDefaults: [{
							value: "CLOSED",
							edition: 900
						}, {
							value: "OPEN",
							edition: 999
						}]
					}
				},
				{
					name: "repeated_field_encoding",
					number: 3,
					type: 14,
					label: 1,
					typeName: ".google.protobuf.FeatureSet.RepeatedFieldEncoding",
					options: {
						retention: 1,
						targets: [4, 1],
						editionDefaults: [{
							value: "EXPANDED",
							edition: 900
						}, {
							value: "PACKED",
							edition: 999
						}]
					}
				},
				{
					name: "utf8_validation",
					number: 4,
					type: 14,
					label: 1,
					typeName: ".google.protobuf.FeatureSet.Utf8Validation",
					options: {
						retention: 1,
						targets: [4, 1],
						editionDefaults: [{
							value: "NONE",
							edition: 900
						}, {
							value: "VERIFY",
							edition: 999
						}]
					}
				},
				{
					name: "message_encoding",
					number: 5,
					type: 14,
					label: 1,
					typeName: ".google.protobuf.FeatureSet.MessageEncoding",
					options: {
						retention: 1,
						targets: [4, 1],
						editionDefaults: [{
							value: "LENGTH_PREFIXED",
							edition: 900
						}]
					}
				},
				{
					name: "json_format",
					number: 6,
					type: 14,
					label: 1,
					typeName: ".google.protobuf.FeatureSet.JsonFormat",
					options: {
						retention: 1,
						targets: [
							3,
							6,
							1
						],
						editionDefaults: [{
							value: "LEGACY_BEST_EFFORT",
							edition: 900
						}, {
							value: "ALLOW",
							edition: 999
						}]
					}
				},
				{
					name: "enforce_naming_style",
					number: 7,
					type: 14,
					label: 1,
					typeName: ".google.protobuf.FeatureSet.EnforceNamingStyle",
					options: {
						retention: 2,
						targets: [
							1,
							2,
							3,
							4,
							5,
							6,
							7,
							8,
							9
						],
						editionDefaults: [{
							value: "STYLE_LEGACY",
							edition: 900
						}, {
							value: "STYLE2024",
							edition: 1001
						}]
					}
				},
				{
					name: "default_symbol_visibility",
					number: 8,
					type: 14,
					label: 1,
					typeName: ".google.protobuf.FeatureSet.VisibilityFeature.DefaultSymbolVisibility",
					options: {
						retention: 2,
						targets: [1],
						editionDefaults: [{
							value: "EXPORT_ALL",
							edition: 900
						}, {
							value: "EXPORT_TOP_LEVEL",
							edition: 1001
						}]
					}
				}
			],
			nestedType: [{
				name: "VisibilityFeature",
				enumType: [{
					name: "DefaultSymbolVisibility",
					value: [
						{
							name: "DEFAULT_SYMBOL_VISIBILITY_UNKNOWN",
							number: 0
						},
						{
							name: "EXPORT_ALL",
							number: 1
						},
						{
							name: "EXPORT_TOP_LEVEL",
							number: 2
						},
						{
							name: "LOCAL_ALL",
							number: 3
						},
						{
							name: "STRICT",
							number: 4
						}
					]
				}]
			}],
			enumType: [
				{
					name: "FieldPresence",
					value: [
						{
							name: "FIELD_PRESENCE_UNKNOWN",
							number: 0
						},
						{
							name: "EXPLICIT",
							number: 1
						},
						{
							name: "IMPLICIT",
							number: 2
						},
						{
							name: "LEGACY_REQUIRED",
							number: 3
						}
					]
				},
				{
					name: "EnumType",
					value: [
						{
							name: "ENUM_TYPE_UNKNOWN",
							number: 0
						},
						{
							name: "OPEN",
							number: 1
						},
						{
							name: "CLOSED",
							number: 2
						}
					]
				},
				{
					name: "RepeatedFieldEncoding",
					value: [
						{
							name: "REPEATED_FIELD_ENCODING_UNKNOWN",
							number: 0
						},
						{
							name: "PACKED",
							number: 1
						},
						{
							name: "EXPANDED",
							number: 2
						}
					]
				},
				{
					name: "Utf8Validation",
					value: [
						{
							name: "UTF8_VALIDATION_UNKNOWN",
							number: 0
						},
						{
							name: "VERIFY",
							number: 2
						},
						{
							name: "NONE",
							number: 3
						}
					]
				},
				{
					name: "MessageEncoding",
					value: [
						{
							name: "MESSAGE_ENCODING_UNKNOWN",
							number: 0
						},
						{
							name: "LENGTH_PREFIXED",
							number: 1
						},
						{
							name: "DELIMITED",
							number: 2
						}
					]
				},
				{
					name: "JsonFormat",
					value: [
						{
							name: "JSON_FORMAT_UNKNOWN",
							number: 0
						},
						{
							name: "ALLOW",
							number: 1
						},
						{
							name: "LEGACY_BEST_EFFORT",
							number: 2
						}
					]
				},
				{
					name: "EnforceNamingStyle",
					value: [
						{
							name: "ENFORCE_NAMING_STYLE_UNKNOWN",
							number: 0
						},
						{
							name: "STYLE2024",
							number: 1
						},
						{
							name: "STYLE_LEGACY",
							number: 2
						}
					]
				}
			],
			extensionRange: [
				{
					start: 1e3,
					end: 9995
				},
				{
					start: 9995,
					end: 1e4
				},
				{
					start: 1e4,
					end: 10001
				}
			]
		},
		{
			name: "FeatureSetDefaults",
			field: [
				{
					name: "defaults",
					number: 1,
					type: 11,
					label: 3,
					typeName: ".google.protobuf.FeatureSetDefaults.FeatureSetEditionDefault"
				},
				{
					name: "minimum_edition",
					number: 4,
					type: 14,
					label: 1,
					typeName: ".google.protobuf.Edition"
				},
				{
					name: "maximum_edition",
					number: 5,
					type: 14,
					label: 1,
					typeName: ".google.protobuf.Edition"
				}
			],
			nestedType: [{
				name: "FeatureSetEditionDefault",
				field: [
					{
						name: "edition",
						number: 3,
						type: 14,
						label: 1,
						typeName: ".google.protobuf.Edition"
					},
					{
						name: "overridable_features",
						number: 4,
						type: 11,
						label: 1,
						typeName: ".google.protobuf.FeatureSet"
					},
					{
						name: "fixed_features",
						number: 5,
						type: 11,
						label: 1,
						typeName: ".google.protobuf.FeatureSet"
					}
				]
			}]
		},
		{
			name: "SourceCodeInfo",
			field: [{
				name: "location",
				number: 1,
				type: 11,
				label: 3,
				typeName: ".google.protobuf.SourceCodeInfo.Location"
			}],
			nestedType: [{
				name: "Location",
				field: [
					{
						name: "path",
						number: 1,
						type: 5,
						label: 3,
						options: { packed: !0 }
					},
					{
						name: "span",
						number: 2,
						type: 5,
						label: 3,
						options: { packed: !0 }
					},
					{
						name: "leading_comments",
						number: 3,
						type: 9,
						label: 1
					},
					{
						name: "trailing_comments",
						number: 4,
						type: 9,
						label: 1
					},
					{
						name: "leading_detached_comments",
						number: 6,
						type: 9,
						label: 3
					}
				]
			}],
			extensionRange: [{
				start: 536e6,
				end: 536000001
			}]
		},
		{
			name: "GeneratedCodeInfo",
			field: [{
				name: "annotation",
				number: 1,
				type: 11,
				label: 3,
				typeName: ".google.protobuf.GeneratedCodeInfo.Annotation"
			}],
			nestedType: [{
				name: "Annotation",
				field: [
					{
						name: "path",
						number: 1,
						type: 5,
						label: 3,
						options: { packed: !0 }
					},
					{
						name: "source_file",
						number: 2,
						type: 9,
						label: 1
					},
					{
						name: "begin",
						number: 3,
						type: 5,
						label: 1
					},
					{
						name: "end",
						number: 4,
						type: 5,
						label: 1
					},
					{
						name: "semantic",
						number: 5,
						type: 14,
						label: 1,
						typeName: ".google.protobuf.GeneratedCodeInfo.Annotation.Semantic"
					}
				],
				enumType: [{
					name: "Semantic",
					value: [
						{
							name: "NONE",
							number: 0
						},
						{
							name: "SET",
							number: 1
						},
						{
							name: "ALIAS",
							number: 2
						}
					]
				}]
			}]
		}
	],
	enumType: [{
		name: "Edition",
		value: [
			{
				name: "EDITION_UNKNOWN",
				number: 0
			},
			{
				name: "EDITION_LEGACY",
				number: 900
			},
			{
				name: "EDITION_PROTO2",
				number: 998
			},
			{
				name: "EDITION_PROTO3",
				number: 999
			},
			{
				name: "EDITION_2023",
				number: 1e3
			},
			{
				name: "EDITION_2024",
				number: 1001
			},
			{
				name: "EDITION_UNSTABLE",
				number: 9999
			},
			{
				name: "EDITION_1_TEST_ONLY",
				number: 1
			},
			{
				name: "EDITION_2_TEST_ONLY",
				number: 2
			},
			{
				name: "EDITION_99997_TEST_ONLY",
				number: 99997
			},
			{
				name: "EDITION_99998_TEST_ONLY",
				number: 99998
			},
			{
				name: "EDITION_99999_TEST_ONLY",
				number: 99999
			},
			{
				name: "EDITION_MAX",
				number: 2147483647
			}
		]
	}, {
		name: "SymbolVisibility",
		value: [
			{
				name: "VISIBILITY_UNSET",
				number: 0
			},
			{
				name: "VISIBILITY_LOCAL",
				number: 1
			},
			{
				name: "VISIBILITY_EXPORT",
				number: 2
			}
		]
	}]
}), 1), On;
(function(e) {
	e[e.DECLARATION = 0] = "DECLARATION", e[e.UNVERIFIED = 1] = "UNVERIFIED";
})(On ||= {});
var kn;
(function(e) {
	e[e.DOUBLE = 1] = "DOUBLE", e[e.FLOAT = 2] = "FLOAT", e[e.INT64 = 3] = "INT64", e[e.UINT64 = 4] = "UINT64", e[e.INT32 = 5] = "INT32", e[e.FIXED64 = 6] = "FIXED64", e[e.FIXED32 = 7] = "FIXED32", e[e.BOOL = 8] = "BOOL", e[e.STRING = 9] = "STRING", e[e.GROUP = 10] = "GROUP", e[e.MESSAGE = 11] = "MESSAGE", e[e.BYTES = 12] = "BYTES", e[e.UINT32 = 13] = "UINT32", e[e.ENUM = 14] = "ENUM", e[e.SFIXED32 = 15] = "SFIXED32", e[e.SFIXED64 = 16] = "SFIXED64", e[e.SINT32 = 17] = "SINT32", e[e.SINT64 = 18] = "SINT64";
})(kn ||= {});
var An;
(function(e) {
	e[e.OPTIONAL = 1] = "OPTIONAL", e[e.REPEATED = 3] = "REPEATED", e[e.REQUIRED = 2] = "REQUIRED";
})(An ||= {});
var jn;
(function(e) {
	e[e.SPEED = 1] = "SPEED", e[e.CODE_SIZE = 2] = "CODE_SIZE", e[e.LITE_RUNTIME = 3] = "LITE_RUNTIME";
})(jn ||= {});
var Mn;
(function(e) {
	e[e.STRING = 0] = "STRING", e[e.CORD = 1] = "CORD", e[e.STRING_PIECE = 2] = "STRING_PIECE";
})(Mn ||= {});
var Nn;
(function(e) {
	e[e.JS_NORMAL = 0] = "JS_NORMAL", e[e.JS_STRING = 1] = "JS_STRING", e[e.JS_NUMBER = 2] = "JS_NUMBER";
})(Nn ||= {});
var Pn;
(function(e) {
	e[e.RETENTION_UNKNOWN = 0] = "RETENTION_UNKNOWN", e[e.RETENTION_RUNTIME = 1] = "RETENTION_RUNTIME", e[e.RETENTION_SOURCE = 2] = "RETENTION_SOURCE";
})(Pn ||= {});
var Fn;
(function(e) {
	e[e.TARGET_TYPE_UNKNOWN = 0] = "TARGET_TYPE_UNKNOWN", e[e.TARGET_TYPE_FILE = 1] = "TARGET_TYPE_FILE", e[e.TARGET_TYPE_EXTENSION_RANGE = 2] = "TARGET_TYPE_EXTENSION_RANGE", e[e.TARGET_TYPE_MESSAGE = 3] = "TARGET_TYPE_MESSAGE", e[e.TARGET_TYPE_FIELD = 4] = "TARGET_TYPE_FIELD", e[e.TARGET_TYPE_ONEOF = 5] = "TARGET_TYPE_ONEOF", e[e.TARGET_TYPE_ENUM = 6] = "TARGET_TYPE_ENUM", e[e.TARGET_TYPE_ENUM_ENTRY = 7] = "TARGET_TYPE_ENUM_ENTRY", e[e.TARGET_TYPE_SERVICE = 8] = "TARGET_TYPE_SERVICE", e[e.TARGET_TYPE_METHOD = 9] = "TARGET_TYPE_METHOD";
})(Fn ||= {});
var In;
(function(e) {
	e[e.IDEMPOTENCY_UNKNOWN = 0] = "IDEMPOTENCY_UNKNOWN", e[e.NO_SIDE_EFFECTS = 1] = "NO_SIDE_EFFECTS", e[e.IDEMPOTENT = 2] = "IDEMPOTENT";
})(In ||= {});
var Ln;
(function(e) {
	e[e.DEFAULT_SYMBOL_VISIBILITY_UNKNOWN = 0] = "DEFAULT_SYMBOL_VISIBILITY_UNKNOWN", e[e.EXPORT_ALL = 1] = "EXPORT_ALL", e[e.EXPORT_TOP_LEVEL = 2] = "EXPORT_TOP_LEVEL", e[e.LOCAL_ALL = 3] = "LOCAL_ALL", e[e.STRICT = 4] = "STRICT";
})(Ln ||= {});
var Rn;
(function(e) {
	e[e.FIELD_PRESENCE_UNKNOWN = 0] = "FIELD_PRESENCE_UNKNOWN", e[e.EXPLICIT = 1] = "EXPLICIT", e[e.IMPLICIT = 2] = "IMPLICIT", e[e.LEGACY_REQUIRED = 3] = "LEGACY_REQUIRED";
})(Rn ||= {});
var zn;
(function(e) {
	e[e.ENUM_TYPE_UNKNOWN = 0] = "ENUM_TYPE_UNKNOWN", e[e.OPEN = 1] = "OPEN", e[e.CLOSED = 2] = "CLOSED";
})(zn ||= {});
var Bn;
(function(e) {
	e[e.REPEATED_FIELD_ENCODING_UNKNOWN = 0] = "REPEATED_FIELD_ENCODING_UNKNOWN", e[e.PACKED = 1] = "PACKED", e[e.EXPANDED = 2] = "EXPANDED";
})(Bn ||= {});
var Vn;
(function(e) {
	e[e.UTF8_VALIDATION_UNKNOWN = 0] = "UTF8_VALIDATION_UNKNOWN", e[e.VERIFY = 2] = "VERIFY", e[e.NONE = 3] = "NONE";
})(Vn ||= {});
var Hn;
(function(e) {
	e[e.MESSAGE_ENCODING_UNKNOWN = 0] = "MESSAGE_ENCODING_UNKNOWN", e[e.LENGTH_PREFIXED = 1] = "LENGTH_PREFIXED", e[e.DELIMITED = 2] = "DELIMITED";
})(Hn ||= {});
var Un;
(function(e) {
	e[e.JSON_FORMAT_UNKNOWN = 0] = "JSON_FORMAT_UNKNOWN", e[e.ALLOW = 1] = "ALLOW", e[e.LEGACY_BEST_EFFORT = 2] = "LEGACY_BEST_EFFORT";
})(Un ||= {});
var Wn;
(function(e) {
	e[e.ENFORCE_NAMING_STYLE_UNKNOWN = 0] = "ENFORCE_NAMING_STYLE_UNKNOWN", e[e.STYLE2024 = 1] = "STYLE2024", e[e.STYLE_LEGACY = 2] = "STYLE_LEGACY";
})(Wn ||= {});
var Gn;
(function(e) {
	e[e.NONE = 0] = "NONE", e[e.SET = 1] = "SET", e[e.ALIAS = 2] = "ALIAS";
})(Gn ||= {});
var Kn;
(function(e) {
	e[e.EDITION_UNKNOWN = 0] = "EDITION_UNKNOWN", e[e.EDITION_LEGACY = 900] = "EDITION_LEGACY", e[e.EDITION_PROTO2 = 998] = "EDITION_PROTO2", e[e.EDITION_PROTO3 = 999] = "EDITION_PROTO3", e[e.EDITION_2023 = 1e3] = "EDITION_2023", e[e.EDITION_2024 = 1001] = "EDITION_2024", e[e.EDITION_UNSTABLE = 9999] = "EDITION_UNSTABLE", e[e.EDITION_1_TEST_ONLY = 1] = "EDITION_1_TEST_ONLY", e[e.EDITION_2_TEST_ONLY = 2] = "EDITION_2_TEST_ONLY", e[e.EDITION_99997_TEST_ONLY = 99997] = "EDITION_99997_TEST_ONLY", e[e.EDITION_99998_TEST_ONLY = 99998] = "EDITION_99998_TEST_ONLY", e[e.EDITION_99999_TEST_ONLY = 99999] = "EDITION_99999_TEST_ONLY", e[e.EDITION_MAX = 2147483647] = "EDITION_MAX";
})(Kn ||= {});
var qn;
(function(e) {
	e[e.VISIBILITY_UNSET = 0] = "VISIBILITY_UNSET", e[e.VISIBILITY_LOCAL = 1] = "VISIBILITY_LOCAL", e[e.VISIBILITY_EXPORT = 2] = "VISIBILITY_EXPORT";
})(qn ||= {});
// ../../node_modules/@bufbuild/protobuf/dist/esm/from-binary.js
function Jn(e) {
	return Object.assign(Object.assign({
		readUnknownFields: !0,
		recursionLimit: 100
	}, e), { depth: 0 });
}
function Yn(e, t, n) {
	let r = w(e, void 0, !1);
	return Xn(r, new Re(t), Jn(n), !1, t.byteLength), r.message;
}
function Xn(e, t, n, r, i) {
	if (++n.depth > n.recursionLimit) throw Error(`cannot decode ${e.desc} from binary: maximum recursion depth of ${n.recursionLimit} reached`);
	let a = r ? t.len : t.pos + i, o, s, c = e.getUnknown() ?? [];
	for (; t.pos < a && ([o, s] = t.tag(), !(r && s == x.EndGroup));) {
		let r = e.findNumber(o);
		if (r) Zn(e, t, r, s, n);
		else {
			let e = n.recursionLimit - n.depth, r = t.skip(s, o, e);
			n.readUnknownFields && c.push({
				no: o,
				wireType: s,
				data: r
			});
		}
	}
	if (r && (s != x.EndGroup || o !== i)) throw Error("invalid end group tag");
	c.length > 0 && e.setUnknown(c), n.depth--;
}
function Zn(e, t, r, i, a) {
	switch (r.fieldKind) {
		case "scalar":
			e.set(r, P(t, r.scalar, r.utf8Validation));
			break;
		case "enum":
			let o = P(t, n.INT32);
			if (r.enum.open) e.set(r, o);
			else if (r.enum.values.some((e) => e.number === o)) e.set(r, o);
			else if (a.readUnknownFields) {
				let t = [];
				ee(o, t);
				let n = e.getUnknown() ?? [];
				n.push({
					no: r.number,
					wireType: i,
					data: new Uint8Array(t)
				}), e.setUnknown(n);
			}
			break;
		case "message":
			e.set(r, er(t, a, r, e.get(r)));
			break;
		case "list":
			$n(t, i, e.get(r), a);
			break;
		case "map": Qn(t, e.get(r), a);
	}
}
function Qn(e, t, n) {
	let r = t.field(), i, a, o = e.uint32(), s = e.pos + o;
	for (; e.pos < s;) {
		let [t] = e.tag();
		switch (t) {
			case 1:
				i = P(e, r.mapKey, r.utf8Validation);
				break;
			case 2: switch (r.mapKind) {
				case "scalar":
					a = P(e, r.scalar, r.utf8Validation);
					break;
				case "enum":
					a = e.int32();
					break;
				case "message": a = er(e, n, r);
			}
		}
	}
	if (i === void 0 && (i = m(r.mapKey, !1)), a === void 0) switch (r.mapKind) {
		case "scalar":
			a = m(r.scalar, !1);
			break;
		case "enum":
			a = r.enum.values[0].number;
			break;
		case "message": a = w(r.message, void 0, !1);
	}
	t.set(i, a);
}
function $n(e, t, r, i) {
	let a = r.field();
	if (a.listKind === "message") {
		r.add(er(e, i, a));
		return;
	}
	let o = a.scalar ?? n.INT32;
	if (t != x.LengthDelimited || o == n.STRING || o == n.BYTES) {
		r.add(P(e, o, a.utf8Validation));
		return;
	}
	let s = e.uint32() + e.pos;
	for (; e.pos < s;) r.add(P(e, o, a.utf8Validation));
}
function er(e, t, n, r) {
	let i = n.delimitedEncoding, a = r ?? w(n.message, void 0, !1);
	return Xn(a, e, t, i, i ? n.number : e.uint32()), a;
}
function P(e, t, r = !1) {
	switch (t) {
		case n.STRING: return e.string(r);
		case n.BOOL: return e.bool();
		case n.DOUBLE: return e.double();
		case n.FLOAT: return e.float();
		case n.INT32: return e.int32();
		case n.INT64: return e.int64();
		case n.UINT64: return e.uint64();
		case n.FIXED64: return e.fixed64();
		case n.BYTES: return e.bytes();
		case n.FIXED32: return e.fixed32();
		case n.SFIXED32: return e.sfixed32();
		case n.SFIXED64: return e.sfixed64();
		case n.SINT64: return e.sint64();
		case n.UINT32: return e.uint32();
		case n.SINT32: return e.sint32();
	}
}
// ../../node_modules/@bufbuild/protobuf/dist/esm/codegenv2/file.js
function F(e, t) {
	let n = Yn(Dn, gt(e));
	return n.messageType.forEach(wt), n.dependency = t?.map((e) => e.proto.name) ?? [], kt(n, (e) => t?.find((t) => t.proto.name === e)).getFile(n.name);
}
// ../../node_modules/@bufbuild/protobuf/dist/esm/wkt/gen/google/protobuf/timestamp_pb.js
var tr = /*@__PURE__*/ F("Ch9nb29nbGUvcHJvdG9idWYvdGltZXN0YW1wLnByb3RvEg9nb29nbGUucHJvdG9idWYiKwoJVGltZXN0YW1wEg8KB3NlY29uZHMYASABKAMSDQoFbmFub3MYAiABKAVChQEKE2NvbS5nb29nbGUucHJvdG9idWZCDlRpbWVzdGFtcFByb3RvUAFaMmdvb2dsZS5nb2xhbmcub3JnL3Byb3RvYnVmL3R5cGVzL2tub3duL3RpbWVzdGFtcHBi+AEBogIDR1BCqgIeR29vZ2xlLlByb3RvYnVmLldlbGxLbm93blR5cGVzYgZwcm90bzM");
// ../../node_modules/@bufbuild/protobuf/dist/esm/wkt/timestamp.js
function nr(e) {
	return new Date(rr(e));
}
function rr(e) {
	return Number(e.seconds) * 1e3 + Math.round(e.nanos / 1e6);
}
// ../../node_modules/@bufbuild/protobuf/dist/esm/wkt/gen/google/protobuf/duration_pb.js
var ir = /*@__PURE__*/ F("Ch5nb29nbGUvcHJvdG9idWYvZHVyYXRpb24ucHJvdG8SD2dvb2dsZS5wcm90b2J1ZiIqCghEdXJhdGlvbhIPCgdzZWNvbmRzGAEgASgDEg0KBW5hbm9zGAIgASgFQoMBChNjb20uZ29vZ2xlLnByb3RvYnVmQg1EdXJhdGlvblByb3RvUAFaMWdvb2dsZS5nb2xhbmcub3JnL3Byb3RvYnVmL3R5cGVzL2tub3duL2R1cmF0aW9ucGL4AQGiAgNHUEKqAh5Hb29nbGUuUHJvdG9idWYuV2VsbEtub3duVHlwZXNiBnByb3RvMw"), ar = /*@__PURE__*/ F("Chlnb29nbGUvcHJvdG9idWYvYW55LnByb3RvEg9nb29nbGUucHJvdG9idWYiJgoDQW55EhAKCHR5cGVfdXJsGAEgASgJEg0KBXZhbHVlGAIgASgMQnYKE2NvbS5nb29nbGUucHJvdG9idWZCCEFueVByb3RvUAFaLGdvb2dsZS5nb2xhbmcub3JnL3Byb3RvYnVmL3R5cGVzL2tub3duL2FueXBiogIDR1BCqgIeR29vZ2xlLlByb3RvYnVmLldlbGxLbm93blR5cGVzYgZwcm90bzM"), or = /*@__PURE__*/ N(ar, 0), sr = 3, cr = { writeUnknownFields: !0 };
function lr(e) {
	return e ? Object.assign(Object.assign({}, cr), e) : cr;
}
function ur(e, t, n) {
	return dr(new Le(), lr(n), w(e, t)).finish();
}
function dr(e, t, n) {
	for (let r of n.sortedFields) if (n.isSet(r)) fr(e, t, n, r);
	else if (r.presence == sr) throw Error(`cannot encode ${r} to binary: required field not set`);
	if (t.writeUnknownFields) for (let { no: t, wireType: r, data: i } of n.getUnknown() ?? []) e.tag(t, r).raw(i);
	return e;
}
function fr(e, t, r, i) {
	switch (i.fieldKind) {
		case "scalar":
		case "enum":
			pr(e, r.desc.typeName, i.name, i.scalar ?? n.INT32, i.number, r.get(i));
			break;
		case "list":
			hr(e, t, i, r.get(i));
			break;
		case "message":
			mr(e, t, i, r.get(i));
			break;
		case "map": for (let [n, a] of r.get(i)) gr(e, t, i, n, a);
	}
}
function pr(e, t, n, r, i, a) {
	_r(e.tag(i, vr(r)), t, n, r, a);
}
function mr(e, t, n, r) {
	n.delimitedEncoding ? dr(e.tag(n.number, x.StartGroup), t, r).tag(n.number, x.EndGroup) : dr(e.tag(n.number, x.LengthDelimited).fork(), t, r).join();
}
function hr(e, t, r, i) {
	if (r.listKind == "message") {
		for (let n of i) mr(e, t, r, n);
		return;
	}
	let a = r.scalar ?? n.INT32;
	if (r.packed) {
		if (!i.size) return;
		e.tag(r.number, x.LengthDelimited).fork();
		for (let t of i) _r(e, r.parent.typeName, r.name, a, t);
		e.join();
	} else for (let t of i) pr(e, r.parent.typeName, r.name, a, r.number, t);
}
function gr(e, t, r, i, a) {
	switch (e.tag(r.number, x.LengthDelimited).fork(), pr(e, r.parent.typeName, r.name, r.mapKey, 1, i), r.mapKind) {
		case "scalar":
		case "enum":
			pr(e, r.parent.typeName, r.name, r.scalar ?? n.INT32, 2, a);
			break;
		case "message": dr(e.tag(2, x.LengthDelimited).fork(), t, a).join();
	}
	e.join();
}
function _r(e, t, r, i, a) {
	try {
		switch (i) {
			case n.STRING:
				e.string(a);
				break;
			case n.BOOL:
				e.bool(a);
				break;
			case n.DOUBLE:
				e.double(a);
				break;
			case n.FLOAT:
				e.float(a);
				break;
			case n.INT32:
				e.int32(a);
				break;
			case n.INT64:
				e.int64(a);
				break;
			case n.UINT64:
				e.uint64(a);
				break;
			case n.FIXED64:
				e.fixed64(a);
				break;
			case n.BYTES:
				e.bytes(a);
				break;
			case n.FIXED32:
				e.fixed32(a);
				break;
			case n.SFIXED32:
				e.sfixed32(a);
				break;
			case n.SFIXED64:
				e.sfixed64(a);
				break;
			case n.SINT64:
				e.sint64(a);
				break;
			case n.UINT32:
				e.uint32(a);
				break;
			case n.SINT32: e.sint32(a);
		}
	} catch (e) {
		throw e instanceof Error ? Error(`cannot encode field ${t}.${r} to binary: ${e.message}`) : e;
	}
}
function vr(e) {
	switch (e) {
		case n.BYTES:
		case n.STRING: return x.LengthDelimited;
		case n.DOUBLE:
		case n.FIXED64:
		case n.SFIXED64: return x.Bit64;
		case n.FIXED32:
		case n.SFIXED32:
		case n.FLOAT: return x.Bit32;
		default: return x.Varint;
	}
}
// ../../node_modules/@bufbuild/protobuf/dist/esm/wkt/any.js
function yr(e, t, n) {
	let r = !1;
	return n || (n = y(or), r = !0), n.value = ur(e, t), n.typeUrl = Sr(t.$typeName), r ? n : void 0;
}
function br(e, t) {
	return e.typeUrl !== "" && (typeof t == "string" ? t : t.typeName) === Cr(e.typeUrl);
}
function xr(e, t) {
	if (e.typeUrl === "") return;
	let n = t.kind == "message" ? t : t.getMessage(Cr(e.typeUrl));
	if (n && br(e, n)) return Yn(n, e.value);
}
function Sr(e) {
	return `type.googleapis.com/${e}`;
}
function Cr(e) {
	let t = e.lastIndexOf("/"), n = t >= 0 ? e.substring(t + 1) : e;
	if (!n.length) throw Error(`invalid type url: ${e}`);
	return n;
}
// ../../node_modules/@bufbuild/protobuf/dist/esm/wkt/gen/google/protobuf/struct_pb.js
var wr = /*@__PURE__*/ F("Chxnb29nbGUvcHJvdG9idWYvc3RydWN0LnByb3RvEg9nb29nbGUucHJvdG9idWYihAEKBlN0cnVjdBIzCgZmaWVsZHMYASADKAsyIy5nb29nbGUucHJvdG9idWYuU3RydWN0LkZpZWxkc0VudHJ5GkUKC0ZpZWxkc0VudHJ5EgsKA2tleRgBIAEoCRIlCgV2YWx1ZRgCIAEoCzIWLmdvb2dsZS5wcm90b2J1Zi5WYWx1ZToCOAEi6gEKBVZhbHVlEjAKCm51bGxfdmFsdWUYASABKA4yGi5nb29nbGUucHJvdG9idWYuTnVsbFZhbHVlSAASFgoMbnVtYmVyX3ZhbHVlGAIgASgBSAASFgoMc3RyaW5nX3ZhbHVlGAMgASgJSAASFAoKYm9vbF92YWx1ZRgEIAEoCEgAEi8KDHN0cnVjdF92YWx1ZRgFIAEoCzIXLmdvb2dsZS5wcm90b2J1Zi5TdHJ1Y3RIABIwCgpsaXN0X3ZhbHVlGAYgASgLMhouZ29vZ2xlLnByb3RvYnVmLkxpc3RWYWx1ZUgAQgYKBGtpbmQiMwoJTGlzdFZhbHVlEiYKBnZhbHVlcxgBIAMoCzIWLmdvb2dsZS5wcm90b2J1Zi5WYWx1ZSobCglOdWxsVmFsdWUSDgoKTlVMTF9WQUxVRRAAQn8KE2NvbS5nb29nbGUucHJvdG9idWZCC1N0cnVjdFByb3RvUAFaL2dvb2dsZS5nb2xhbmcub3JnL3Byb3RvYnVmL3R5cGVzL2tub3duL3N0cnVjdHBi+AEBogIDR1BCqgIeR29vZ2xlLlByb3RvYnVmLldlbGxLbm93blR5cGVzYgZwcm90bzM"), Tr = /*@__PURE__*/ N(wr, 0), Er = /*@__PURE__*/ N(wr, 1), Dr = /*@__PURE__*/ N(wr, 2), Or;
(function(e) {
	e[e.NULL_VALUE = 0] = "NULL_VALUE";
})(Or ||= {});
// ../../node_modules/@bufbuild/protobuf/dist/esm/extensions.js
function kr(e, t, n) {
	Nr(t, e);
	let r = jr(e.$unknown, t), [i, a, o] = Mr(t), s = Jn(n);
	for (let e of r) Zn(i, new Re(e.data), a, e.wireType, s);
	return o();
}
function Ar(e, t, n) {
	Nr(t, e);
	let r = (e.$unknown ?? []).filter((e) => e.no !== t.number), [i, a] = Mr(t, n), o = new Le();
	fr(o, { writeUnknownFields: !0 }, i, a);
	let s = new Re(o.finish());
	for (; s.pos < s.len;) {
		let [e, t] = s.tag(), n = s.skip(t, e);
		r.push({
			no: e,
			wireType: t,
			data: n
		});
	}
	e.$unknown = r;
}
function jr(e, t) {
	if (e === void 0) return [];
	if (t.fieldKind === "enum" || t.fieldKind === "scalar") {
		for (let n = e.length - 1; n >= 0; --n) if (e[n].no == t.number) return [e[n]];
		return [];
	}
	return e.filter((e) => e.no === t.number);
}
function Mr(e, t) {
	let n = e.typeName, r = Object.assign(Object.assign({}, e), {
		kind: "field",
		parent: e.extendee,
		localName: n
	}), i = Object.assign(Object.assign({}, e.extendee), {
		fields: [r],
		members: [r],
		oneofs: []
	}), a = y(i, t === void 0 ? void 0 : { [n]: t });
	return [
		w(i, a),
		r,
		() => {
			let t = a[n];
			if (t === void 0) {
				let t = e.message;
				return v(t) ? m(t.fields[0].scalar, t.fields[0].longAsString) : y(t);
			}
			return t;
		}
	];
}
function Nr(e, t) {
	if (e.extendee.typeName != t.$typeName) throw Error(`extension ${e.typeName} can only be applied to message ${e.extendee.typeName}`);
}
// ../../node_modules/@bufbuild/protobuf/dist/esm/to-json.js
var Pr = 3, Fr = 2, Ir = {
	alwaysEmitImplicit: !1,
	enumAsInteger: !1,
	useProtoFieldName: !1
};
function Lr(e) {
	return e ? Object.assign(Object.assign({}, Ir), e) : Ir;
}
function Rr(e, t, n) {
	return I(w(e, t), Lr(n));
}
function zr(e, t, n) {
	let r = Rr(e, t, n);
	return JSON.stringify(r, null, n?.prettySpaces ?? 0);
}
function I(e, t) {
	let n = Kr(e, t);
	if (n !== void 0) return n;
	let r = {};
	for (let n of e.sortedFields) {
		if (!e.isSet(n)) {
			if (n.presence == Pr) throw Error(`cannot encode ${n} to JSON: required field not set`);
			if (!t.alwaysEmitImplicit || n.presence !== Fr) continue;
		}
		let i = Br(n, e.get(n), t);
		i !== void 0 && (r[Gr(n, t)] = i);
	}
	if (t.registry) {
		let n = /* @__PURE__ */ new Set();
		for (let { no: i } of e.getUnknown() ?? []) if (!n.has(i)) {
			n.add(i);
			let a = t.registry.getExtensionFor(e.desc, i);
			if (!a) continue;
			let [o, s] = Mr(a, kr(e.message, a)), c = Br(s, o.get(s), t);
			c !== void 0 && (r[a.jsonName] = c);
		}
	}
	return r;
}
function Br(e, t, n) {
	switch (e.fieldKind) {
		case "scalar": return Wr(e, t);
		case "message": return I(t, n);
		case "enum": return Ur(e.enum, t, n.enumAsInteger);
		case "list": return Hr(t, n);
		case "map": return Vr(t, n);
	}
}
function Vr(e, t) {
	let n = e.field(), r = {};
	switch (n.mapKind) {
		case "scalar":
			for (let [t, i] of e) r[t] = Wr(n, i);
			break;
		case "message":
			for (let [n, i] of e) r[n] = I(i, t);
			break;
		case "enum": for (let [i, a] of e) r[i] = Ur(n.enum, a, t.enumAsInteger);
	}
	return t.alwaysEmitImplicit || e.size > 0 ? r : void 0;
}
function Hr(e, t) {
	let n = e.field(), r = [];
	switch (n.listKind) {
		case "scalar":
			for (let t of e) r.push(Wr(n, t));
			break;
		case "enum":
			for (let i of e) r.push(Ur(n.enum, i, t.enumAsInteger));
			break;
		case "message": for (let n of e) r.push(I(n, t));
	}
	return t.alwaysEmitImplicit || r.length > 0 ? r : void 0;
}
function Ur(e, t, n) {
	if (typeof t != "number") throw Error(`cannot encode ${e} to JSON: expected number, got ${C(t)}`);
	return e.typeName == "google.protobuf.NullValue" ? null : n ? t : e.value[t]?.name ?? t;
}
function Wr(e, t) {
	switch (e.scalar) {
		case n.INT32:
		case n.SFIXED32:
		case n.SINT32:
		case n.FIXED32:
		case n.UINT32:
			if (typeof t != "number") throw Error(`cannot encode ${e} to JSON: ${S(e, t)?.message}`);
			return t;
		case n.FLOAT:
		case n.DOUBLE:
			if (typeof t != "number") throw Error(`cannot encode ${e} to JSON: ${S(e, t)?.message}`);
			return Number.isNaN(t) ? "NaN" : t === Infinity ? "Infinity" : t === -Infinity ? "-Infinity" : t;
		case n.STRING:
			if (typeof t != "string") throw Error(`cannot encode ${e} to JSON: ${S(e, t)?.message}`);
			return t;
		case n.BOOL:
			if (typeof t != "boolean") throw Error(`cannot encode ${e} to JSON: ${S(e, t)?.message}`);
			return t;
		case n.UINT64:
		case n.FIXED64:
		case n.INT64:
		case n.SFIXED64:
		case n.SINT64:
			if (typeof t == "bigint" || typeof t == "string" || typeof t == "number" && Number.isInteger(t)) return t.toString();
			throw Error(`cannot encode ${e} to JSON: ${S(e, t)?.message}`);
		case n.BYTES:
			if (t instanceof Uint8Array) return _t(t);
			throw Error(`cannot encode ${e} to JSON: ${S(e, t)?.message}`);
	}
}
function Gr(e, t) {
	return t.useProtoFieldName ? e.name : e.jsonName;
}
function Kr(e, t) {
	if (e.desc.typeName.startsWith("google.protobuf.")) switch (e.desc.typeName) {
		case "google.protobuf.Any": return qr(e.message, t);
		case "google.protobuf.Timestamp": return $r(e.message);
		case "google.protobuf.Duration": return Jr(e.message);
		case "google.protobuf.FieldMask": return Yr(e.message);
		case "google.protobuf.Struct": return Xr(e.message);
		case "google.protobuf.Value": return Zr(e.message);
		case "google.protobuf.ListValue": return Qr(e.message);
		default:
			if (v(e.desc)) {
				let t = e.desc.fields[0];
				return Wr(t, e.get(t));
			}
			return;
	}
}
function qr(e, t) {
	if (e.typeUrl === "") return {};
	let { registry: n } = t, r, i;
	if (n && (r = xr(e, n), r && (i = n.getMessage(r.$typeName))), !i || !r) throw Error(`cannot encode message ${e.$typeName} to JSON: "${e.typeUrl}" is not in the type registry`);
	let a = w(i, r), o = ge(i) ? { value: Kr(a, t) } : I(a, t);
	return o["@type"] = e.typeUrl, o;
}
function Jr(e) {
	let t = Number(e.seconds), n = e.nanos;
	if (t > 315576e6 || t < -315576e6) throw Error(`cannot encode message ${e.$typeName} to JSON: value out of range`);
	if (t > 0 && n < 0 || t < 0 && n > 0) throw Error(`cannot encode message ${e.$typeName} to JSON: nanos sign must match seconds sign`);
	let r = e.seconds.toString();
	if (n !== 0) {
		let e = Math.abs(n).toString();
		e = "0".repeat(9 - e.length) + e, e.substring(3) === "000000" ? e = e.substring(0, 3) : e.substring(6) === "000" && (e = e.substring(0, 6)), r += "." + e, n < 0 && t == 0 && (r = "-" + r);
	}
	return r + "s";
}
function Yr(e) {
	return e.paths.map((t) => {
		if (St(D(t)) !== t) throw Error(`cannot encode message ${e.$typeName} to JSON: lowerCamelCase of path name "${t}" is irreversible`);
		return D(t);
	}).join(",");
}
function Xr(e) {
	let t = {};
	for (let [n, r] of Object.entries(e.fields)) t[n] = Zr(r);
	return t;
}
function Zr(e) {
	switch (e.kind.case) {
		case "nullValue": return null;
		case "numberValue":
			if (!Number.isFinite(e.kind.value)) throw Error(`${e.$typeName} cannot be NaN or Infinity`);
			return e.kind.value;
		case "boolValue": return e.kind.value;
		case "stringValue": return e.kind.value;
		case "structValue": return Xr(e.kind.value);
		case "listValue": return Qr(e.kind.value);
		default: throw Error(`${e.$typeName} must have a value`);
	}
}
function Qr(e) {
	return e.values.map(Zr);
}
function $r(e) {
	let t = Number(e.seconds) * 1e3;
	if (t < Date.parse("0001-01-01T00:00:00Z") || t > Date.parse("9999-12-31T23:59:59Z")) throw Error(`cannot encode message ${e.$typeName} to JSON: must be from 0001-01-01T00:00:00Z to 9999-12-31T23:59:59Z inclusive`);
	if (e.nanos < 0) throw Error(`cannot encode message ${e.$typeName} to JSON: nanos must not be negative`);
	if (e.nanos > 999999999) throw Error(`cannot encode message ${e.$typeName} to JSON: nanos must not be greater than 99999999`);
	let n = "Z";
	if (e.nanos > 0) {
		let t = (e.nanos + 1e9).toString().substring(1);
		n = t.substring(3) === "000000" ? "." + t.substring(0, 3) + "Z" : t.substring(6) === "000" ? "." + t.substring(0, 6) + "Z" : "." + t + "Z";
	}
	return new Date(t).toISOString().replace(".000Z", n);
}
// ../../node_modules/@bufbuild/protobuf/dist/esm/from-json.js
function ei(e) {
	return Object.assign(Object.assign({
		ignoreUnknownFields: !1,
		recursionLimit: 100
	}, e), { depth: 0 });
}
function ti(e, t, n) {
	return ni(e, vi(t, e.typeName), n);
}
function ni(e, t, n) {
	let r = w(e);
	try {
		L(r, t, ei(n));
	} catch (e) {
		throw Pe(e) ? Error(`cannot decode ${e.field()} from JSON: ${e.message}`, { cause: e }) : e;
	}
	return r.message;
}
var ri = /* @__PURE__ */ new WeakMap();
function ii(e, t) {
	if (!ri.has(e)) {
		let t = /* @__PURE__ */ new Map();
		for (let n of e.fields) t.set(n.name, n).set(n.jsonName, n);
		ri.set(e, t);
	}
	return ri.get(e)?.get(t);
}
function L(e, t, n) {
	if (++n.depth > n.recursionLimit) throw Error(`cannot decode ${e.desc} from JSON: maximum recursion depth of ${n.recursionLimit} reached`);
	if (bi(e, t, n)) {
		n.depth--;
		return;
	}
	if (t == null || Array.isArray(t) || typeof t != "object") throw Error(`cannot decode ${e.desc} from JSON: ${C(t)}`);
	let r = /* @__PURE__ */ new Map(), i = /* @__PURE__ */ new Set();
	for (let [a, o] of Object.entries(t)) {
		let t = ii(e.desc, a);
		if (t) {
			if (i.has(t)) throw new b(t, "set multiple times");
			if (i.add(t), t.oneof && o === null && t.fieldKind == "scalar") continue;
			if (t.oneof) {
				let e = r.get(t.oneof);
				if (e !== void 0) throw new b(t.oneof, `oneof set multiple times by ${e.name} and ${t.name}`);
				r.set(t.oneof, t);
			}
			ai(e, t, o, n);
		} else {
			let t;
			if (a.startsWith("[") && a.endsWith("]") && (t = n.registry?.getExtension(a.substring(1, a.length - 1))) && t.extendee.typeName === e.desc.typeName) {
				let [r, i, a] = Mr(t);
				ai(r, i, o, n), Ar(e.message, t, a());
			}
			if (!t && !n.ignoreUnknownFields) throw Error(`cannot decode ${e.desc} from JSON: key "${a}" is unknown`);
		}
	}
	n.depth--;
}
function ai(e, t, n, r) {
	switch (t.fieldKind) {
		case "scalar":
			di(e, t, n);
			break;
		case "enum":
			ui(e, t, n, r);
			break;
		case "message":
			li(e, t, n, r);
			break;
		case "list":
			ci(e.get(t), n, r);
			break;
		case "map": si(e.get(t), n, r);
	}
}
function oi(e, t, n) {
	if (e.scalar && t !== null) return hi(e, t);
	if (e.message && !fi(e, t)) {
		let r = w(e.message);
		return L(r, t, n), r;
	}
	if (e.enum && !fi(e, t)) return mi(e.enum, t, n.ignoreUnknownFields);
	throw new b(e, `${e.fieldKind === "list" ? "list item" : "map value"} must not be null`);
}
function si(e, t, n) {
	if (t === null) return;
	let r = e.field();
	if (typeof t != "object" || Array.isArray(t)) throw new b(r, "expected object, got " + C(t));
	let i = /* @__PURE__ */ new Set();
	for (let [a, o] of Object.entries(t)) {
		let t = gi(r.mapKey, a);
		if (i.has(t)) throw new b(r, `duplicate map key "${a}"`);
		i.add(t);
		let s = oi(r, o, n);
		s !== pi && e.set(t, s);
	}
}
function ci(e, t, n) {
	if (t === null) return;
	let r = e.field();
	if (!Array.isArray(t)) throw new b(r, "expected Array, got " + C(t));
	for (let i of t) {
		let t = oi(r, i, n);
		t !== pi && e.add(t);
	}
}
function li(e, t, n, r) {
	if (fi(t, n)) {
		e.clear(t);
		return;
	}
	let i = e.isSet(t) ? e.get(t) : w(t.message);
	L(i, n, r), e.set(t, i);
}
function ui(e, t, n, r) {
	if (fi(t, n)) {
		e.clear(t);
		return;
	}
	let i = mi(t.enum, n, r.ignoreUnknownFields);
	i !== pi && e.set(t, i);
}
function di(e, t, n) {
	n === null ? e.clear(t) : e.set(t, hi(t, n));
}
function fi(e, t) {
	return t === null && e.message?.typeName != "google.protobuf.Value" && e.enum?.typeName != "google.protobuf.NullValue";
}
var pi = Symbol();
function mi(e, t, n) {
	if (t === null) return e.values[0].number;
	switch (typeof t) {
		case "number":
			if (Number.isInteger(t)) return t;
			break;
		case "string":
			let r = e.values.find((e) => e.name === t);
			if (r !== void 0) return r.number;
			if (n) return pi;
	}
	throw Error(`cannot decode ${e} from JSON: ${C(t)}`);
}
function hi(e, t) {
	switch (e.scalar) {
		case n.DOUBLE:
		case n.FLOAT:
			if (t === "NaN") return NaN;
			if (t === "Infinity") return Infinity;
			if (t === "-Infinity") return -Infinity;
			if (typeof t == "number") {
				if (Number.isNaN(t)) throw new b(e, "unexpected NaN number");
				if (!Number.isFinite(t)) throw new b(e, "unexpected infinite number");
				break;
			}
			if (typeof t == "string") {
				if (t === "" || t.trim().length !== t.length) break;
				let e = Number(t);
				if (!Number.isFinite(e)) break;
				return e;
			}
			break;
		case n.INT32:
		case n.FIXED32:
		case n.SFIXED32:
		case n.SINT32:
		case n.UINT32: return _i(t);
		case n.BYTES: if (typeof t == "string") {
			if (t === "") return /* @__PURE__ */ new Uint8Array();
			try {
				return gt(t);
			} catch (t) {
				throw new b(e, t instanceof Error ? t.message : String(t));
			}
		}
	}
	return t;
}
function gi(e, t) {
	switch (e) {
		case n.BOOL:
			switch (t) {
				case "true": return !0;
				case "false": return !1;
			}
			return t;
		case n.INT32:
		case n.FIXED32:
		case n.UINT32:
		case n.SFIXED32:
		case n.SINT32: return _i(t);
		case n.INT64:
		case n.SINT64:
		case n.SFIXED64:
		case n.UINT64:
		case n.FIXED64: return /^-?0+$/.test(t) ? "0" : t.replace(/^(-?)0+(?=\d)/, "$1");
		default: return t;
	}
}
function _i(e) {
	if (typeof e == "string") {
		if (e === "" || e.trim().length !== e.length) return e;
		let t = Number(e);
		return Number.isNaN(t) ? e : t;
	}
	return e;
}
function vi(e, t) {
	let n;
	try {
		n = JSON.parse(e);
	} catch (e) {
		let n = e instanceof Error ? e.message : String(e);
		throw Error(`cannot decode message ${t} from JSON: ${n}`, { cause: e });
	}
	return yi(e, t), n;
}
function yi(e, t) {
	let n = [], r = !1, i = 0;
	for (; i < e.length;) switch (e[i]) {
		case "{":
			n.push(/* @__PURE__ */ new Set()), r = !0, i++;
			break;
		case "[":
			n.push(null), r = !1, i++;
			break;
		case "}":
		case "]":
			n.pop(), r = !1, i++;
			break;
		case ",":
			r = n[n.length - 1] != null, i++;
			break;
		case ":":
			r = !1, i++;
			break;
		case "\"": {
			let a = i++, o = !1;
			for (; i < e.length;) if (e[i] == "\\") o = !0, i += 2;
			else {
				if (e[i] == "\"") break;
				i++;
			}
			let s = i++, c = n[n.length - 1];
			if (r && c) {
				let n = o ? JSON.parse(e.substring(a, s + 1)) : e.substring(a + 1, s);
				if (c.has(n)) throw Error(`cannot decode message ${t} from JSON: duplicate object key "${n}"`);
				c.add(n);
			}
			r = !1;
			break;
		}
		default: i++;
	}
}
function bi(e, t, n) {
	if (!e.desc.typeName.startsWith("google.protobuf.")) return !1;
	switch (e.desc.typeName) {
		case "google.protobuf.Any": return xi(e.message, t, n), !0;
		case "google.protobuf.Timestamp": return Si(e.message, t), !0;
		case "google.protobuf.Duration": return Ci(e.message, t), !0;
		case "google.protobuf.FieldMask": return wi(e.message, t), !0;
		case "google.protobuf.Struct": return Ti(e.message, t, n), !0;
		case "google.protobuf.Value": return Ei(e.message, t, n), !0;
		case "google.protobuf.ListValue": return Di(e.message, t, n), !0;
		default:
			if (v(e.desc)) {
				let n = e.desc.fields[0];
				return t === null ? e.clear(n) : e.set(n, hi(n, t)), !0;
			}
			return !1;
	}
}
function xi(e, t, n) {
	if (t === null || Array.isArray(t) || typeof t != "object") throw Error(`cannot decode message ${e.$typeName} from JSON: expected object but got ${C(t)}`);
	if (Object.keys(t).length == 0) return;
	let r = t["@type"];
	if (typeof r != "string" || r == "") throw Error(`cannot decode message ${e.$typeName} from JSON: "@type" is empty`);
	let i = r.includes("/") ? r.substring(r.lastIndexOf("/") + 1) : r;
	if (!i.length) throw Error(`cannot decode message ${e.$typeName} from JSON: "@type" is invalid`);
	let a = n.registry?.getMessage(i);
	if (!a) throw Error(`cannot decode message ${e.$typeName} from JSON: ${r} is not in the type registry`);
	let o = w(a);
	if (ge(a) && Object.prototype.hasOwnProperty.call(t, "value")) {
		let e = t.value;
		L(o, e, n);
	} else {
		let e = Object.assign({}, t);
		delete e["@type"], L(o, e, n);
	}
	yr(o.desc, o.message, e);
}
function Si(e, t) {
	if (typeof t != "string") throw Error(`cannot decode message ${e.$typeName} from JSON: ${C(t)}`);
	let n = t.match(/^([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?(?:Z|([+-][0-9][0-9]:[0-9][0-9]))$/);
	if (!n) throw Error(`cannot decode message ${e.$typeName} from JSON: invalid RFC 3339 string`);
	let r = Date.parse(n[1] + "-" + n[2] + "-" + n[3] + "T" + n[4] + ":" + n[5] + ":" + n[6] + (n[8] ? n[8] : "Z"));
	if (Number.isNaN(r)) throw Error(`cannot decode message ${e.$typeName} from JSON: invalid RFC 3339 string`);
	if (r < Date.parse("0001-01-01T00:00:00Z") || r > Date.parse("9999-12-31T23:59:59Z")) throw Error(`cannot decode message ${e.$typeName} from JSON: must be from 0001-01-01T00:00:00Z to 9999-12-31T23:59:59Z inclusive`);
	e.seconds = p.parse(r / 1e3), e.nanos = 0, n[7] && (e.nanos = parseInt("1" + n[7] + "0".repeat(9 - n[7].length)) - 1e9);
}
function Ci(e, t) {
	if (typeof t != "string") throw Error(`cannot decode message ${e.$typeName} from JSON: ${C(t)}`);
	let n = t.match(/^(-?[0-9]+)(?:\.([0-9]+))?s/);
	if (n === null) throw Error(`cannot decode message ${e.$typeName} from JSON: ${C(t)}`);
	let r = Number(n[1]);
	if (r > 315576e6 || r < -315576e6) throw Error(`cannot decode message ${e.$typeName} from JSON: ${C(t)}`);
	if (e.seconds = p.parse(r), typeof n[2] != "string") return;
	let i = n[2] + "0".repeat(9 - n[2].length);
	e.nanos = parseInt(i), (r < 0 || Object.is(r, -0)) && (e.nanos = -e.nanos);
}
function wi(e, t) {
	if (typeof t != "string") throw Error(`cannot decode message ${e.$typeName} from JSON: ${C(t)}`);
	t !== "" && (e.paths = t.split(",").map((t) => {
		if (t.includes("_")) throw Error(`cannot decode message ${e.$typeName} from JSON: path names must be lowerCamelCase`);
		return St(t);
	}));
}
function Ti(e, t, n) {
	if (typeof t != "object" || !t || Array.isArray(t)) throw Error(`cannot decode message ${e.$typeName} from JSON ${C(t)}`);
	for (let [r, i] of Object.entries(t)) {
		let t = y(Er);
		Ei(t, i, n), e.fields[r] = t;
	}
}
function Ei(e, t, n) {
	if (++n.depth > n.recursionLimit) throw Error(`cannot decode ${e.$typeName} from JSON: maximum recursion depth of ${n.recursionLimit} reached`);
	switch (typeof t) {
		case "number":
			e.kind = {
				case: "numberValue",
				value: t
			};
			break;
		case "string":
			e.kind = {
				case: "stringValue",
				value: t
			};
			break;
		case "boolean":
			e.kind = {
				case: "boolValue",
				value: t
			};
			break;
		case "object":
			if (t === null) e.kind = {
				case: "nullValue",
				value: Or.NULL_VALUE
			};
			else if (Array.isArray(t)) {
				let r = y(Dr);
				Di(r, t, n), e.kind = {
					case: "listValue",
					value: r
				};
			} else {
				let r = y(Tr);
				Ti(r, t, n), e.kind = {
					case: "structValue",
					value: r
				};
			}
			break;
		default: throw Error(`cannot decode message ${e.$typeName} from JSON ${C(t)}`);
	}
	return n.depth--, e;
}
function Di(e, t, n) {
	if (!Array.isArray(t)) throw Error(`cannot decode message ${e.$typeName} from JSON ${C(t)}`);
	for (let r of t) {
		let t = y(Er);
		Ei(t, r, n), e.values.push(t);
	}
}
// ../../node_modules/@connectrpc/connect/dist/esm/protocol-connect/code-string.js
function Oi(t) {
	let n = e[t];
	return typeof n == "string" ? n[0].toLowerCase() + n.substring(1).replace(/[A-Z]/g, (e) => "_" + e.toLowerCase()) : t.toString();
}
var ki;
function Ai(t) {
	if (!ki) {
		ki = {};
		for (let t of Object.values(e)) typeof t != "string" && (ki[Oi(t)] = t);
	}
	return ki[t];
}
// ../../node_modules/@connectrpc/connect/dist/esm/connect-error.js
var R = class t extends Error {
	constructor(t, n = e.Unknown, r, i, a) {
		super(ji(t, n)), this.name = "ConnectError", this.isWireError = !1, Object.setPrototypeOf(this, new.target.prototype), this.rawMessage = t, this.code = n, this.metadata = new Headers(r ?? {}), this.details = i ?? [], this.cause = a;
	}
	static from(n, r = e.Unknown) {
		return n instanceof t ? n : n instanceof Error ? n.name == "AbortError" || n.name == "TimeoutError" ? new t(n.message, e.Canceled) : new t(n.message, r, void 0, void 0, n) : new t(String(n), r, void 0, void 0, n);
	}
	static [Symbol.hasInstance](e) {
		return e instanceof Error ? Object.getPrototypeOf(e) === t.prototype || e.name === "ConnectError" && "code" in e && typeof e.code == "number" && "metadata" in e && "details" in e && Array.isArray(e.details) && "rawMessage" in e && typeof e.rawMessage == "string" && "cause" in e : !1;
	}
	findDetails(e) {
		let t = e.kind === "message" ? { getMessage: (t) => t === e.typeName ? e : void 0 } : e, n = [];
		for (let e of this.details) {
			if ("desc" in e) {
				t.getMessage(e.desc.typeName) && n.push(y(e.desc, e.value));
				continue;
			}
			let r = t.getMessage(e.type);
			if (r) try {
				n.push(Yn(r, e.value));
			} catch {}
		}
		return n;
	}
};
function ji(e, t) {
	return e.length ? `[${Oi(t)}] ${e}` : `[${Oi(t)}]`;
}
// ../../node_modules/@connectrpc/connect/dist/esm/http-headers.js
function Mi(t, n, r) {
	try {
		let e = gt(t);
		return n ? Yn(n, e, r) : e;
	} catch (t) {
		throw R.from(t, e.DataLoss);
	}
}
function Ni(...e) {
	let t = new Headers();
	for (let n of e) n.forEach((e, n) => {
		t.append(n, e);
	});
	return t;
}
// ../../node_modules/@connectrpc/connect/dist/esm/any-client.js
function Pi(e, t) {
	let n = {};
	for (let r of e.methods) {
		let e = t(r);
		e != null && (n[r.localName] = e);
	}
	return n;
}
// ../../node_modules/@connectrpc/connect/dist/esm/protocol/limit-io.js
function Fi(t, n, r = !1) {
	if (n > t) {
		let i = `message size is larger than configured readMaxBytes ${t}`;
		throw r && (i = `message size ${n} is larger than configured readMaxBytes ${t}`), new R(i, e.ResourceExhausted);
	}
}
// ../../node_modules/@connectrpc/connect/dist/esm/protocol/envelope.js
function Ii(e) {
	return new Li(e);
}
var Li = class {
	constructor(e) {
		this.readMaxBytes = e, this.header = /* @__PURE__ */ new Uint8Array(5), this.headerView = new DataView(this.header.buffer), this.buf = [];
	}
	get byteLength() {
		return this.buf.reduce((e, t) => e + t.byteLength, 0);
	}
	decode(e) {
		this.buf.push(e);
		let t = [];
		for (;;) {
			let e = this.pop();
			if (!e) break;
			t.push(e);
		}
		return t;
	}
	pop() {
		if (!(!this.env && (this.env = this.head(), !this.env)) && this.cons(this.env.data)) {
			let e = this.env;
			return this.env = void 0, e;
		}
	}
	head() {
		if (!this.cons(this.header)) return;
		let e = this.headerView.getUint8(0), t = this.headerView.getUint32(1);
		return Fi(this.readMaxBytes, t, !0), {
			flags: e,
			data: new Uint8Array(t)
		};
	}
	cons(e) {
		let t = e.byteLength;
		if (this.byteLength < t) return !1;
		let n = 0;
		for (; n < t;) {
			let r = this.buf.shift();
			r.byteLength > t - n ? (e.set(r.subarray(0, t - n), n), this.buf.unshift(r.subarray(t - n)), n += t - n) : (e.set(r, n), n += r.byteLength);
		}
		return !0;
	}
};
function Ri(t) {
	let n, r = Ii(4294967295);
	return new ReadableStream({
		start() {
			n = t.getReader();
		},
		async pull(t) {
			let i = !1;
			for (; !i;) {
				let a = await n.read();
				if (a.done) r.byteLength > 0 && t.error(new R("protocol error: incomplete envelope", e.InvalidArgument)), t.close();
				else for (let e of r.decode(a.value)) t.enqueue(e), i = !0;
			}
		}
	});
}
function zi(e, t) {
	let n = new Uint8Array(t.length + 5);
	n.set(t, 5);
	let r = new DataView(n.buffer, n.byteOffset, n.byteLength);
	return r.setUint8(0, e), r.setUint32(1, t.length), n;
}
// ../../node_modules/@connectrpc/connect/dist/esm/protocol/async-iterable.js
var Bi = function(e) {
	if (!Symbol.asyncIterator) throw TypeError("Symbol.asyncIterator is not defined.");
	var t = e[Symbol.asyncIterator], n;
	return t ? t.call(e) : (e = typeof __values == "function" ? __values(e) : e[Symbol.iterator](), n = {}, r("next"), r("throw"), r("return"), n[Symbol.asyncIterator] = function() {
		return this;
	}, n);
	function r(t) {
		n[t] = e[t] && function(n) {
			return new Promise(function(r, a) {
				n = e[t](n), i(r, a, n.done, n.value);
			});
		};
	}
	function i(e, t, n, r) {
		Promise.resolve(r).then(function(t) {
			e({
				value: t,
				done: n
			});
		}, t);
	}
}, z = function(e) {
	return this instanceof z ? (this.v = e, this) : new z(e);
}, Vi = function(e, t, n) {
	if (!Symbol.asyncIterator) throw TypeError("Symbol.asyncIterator is not defined.");
	var r = n.apply(e, t || []), i, a = [];
	return i = Object.create((typeof AsyncIterator == "function" ? AsyncIterator : Object).prototype), s("next"), s("throw"), s("return", o), i[Symbol.asyncIterator] = function() {
		return this;
	}, i;
	function o(e) {
		return function(t) {
			return Promise.resolve(t).then(e, d);
		};
	}
	function s(e, t) {
		r[e] && (i[e] = function(t) {
			return new Promise(function(n, r) {
				a.push([
					e,
					t,
					n,
					r
				]) > 1 || c(e, t);
			});
		}, t && (i[e] = t(i[e])));
	}
	function c(e, t) {
		try {
			l(r[e](t));
		} catch (e) {
			f(a[0][3], e);
		}
	}
	function l(e) {
		e.value instanceof z ? Promise.resolve(e.value.v).then(u, d) : f(a[0][2], e);
	}
	function u(e) {
		c("next", e);
	}
	function d(e) {
		c("throw", e);
	}
	function f(e, t) {
		e(t), a.shift(), a.length && c(a[0][0], a[0][1]);
	}
}, Hi = function(e) {
	var t = {}, n;
	return r("next"), r("throw", function(e) {
		throw e;
	}), r("return"), t[Symbol.iterator] = function() {
		return this;
	}, t;
	function r(r, i) {
		t[r] = e[r] ? function(t) {
			return (n = !n) ? {
				value: z(e[r](t)),
				done: !1
			} : i ? i(t) : t;
		} : i;
	}
};
function Ui(e) {
	return Vi(this, arguments, function* () {
		yield z(yield* Hi(Bi(e)));
	});
}
// ../../node_modules/@connectrpc/connect/dist/esm/promise-client.js
var Wi = function(e) {
	if (!Symbol.asyncIterator) throw TypeError("Symbol.asyncIterator is not defined.");
	var t = e[Symbol.asyncIterator], n;
	return t ? t.call(e) : (e = typeof __values == "function" ? __values(e) : e[Symbol.iterator](), n = {}, r("next"), r("throw"), r("return"), n[Symbol.asyncIterator] = function() {
		return this;
	}, n);
	function r(t) {
		n[t] = e[t] && function(n) {
			return new Promise(function(r, a) {
				n = e[t](n), i(r, a, n.done, n.value);
			});
		};
	}
	function i(e, t, n, r) {
		Promise.resolve(r).then(function(t) {
			e({
				value: t,
				done: n
			});
		}, t);
	}
}, B = function(e) {
	return this instanceof B ? (this.v = e, this) : new B(e);
}, Gi = function(e) {
	var t = {}, n;
	return r("next"), r("throw", function(e) {
		throw e;
	}), r("return"), t[Symbol.iterator] = function() {
		return this;
	}, t;
	function r(r, i) {
		t[r] = e[r] ? function(t) {
			return (n = !n) ? {
				value: B(e[r](t)),
				done: !1
			} : i ? i(t) : t;
		} : i;
	}
}, Ki = function(e, t, n) {
	if (!Symbol.asyncIterator) throw TypeError("Symbol.asyncIterator is not defined.");
	var r = n.apply(e, t || []), i, a = [];
	return i = Object.create((typeof AsyncIterator == "function" ? AsyncIterator : Object).prototype), s("next"), s("throw"), s("return", o), i[Symbol.asyncIterator] = function() {
		return this;
	}, i;
	function o(e) {
		return function(t) {
			return Promise.resolve(t).then(e, d);
		};
	}
	function s(e, t) {
		r[e] && (i[e] = function(t) {
			return new Promise(function(n, r) {
				a.push([
					e,
					t,
					n,
					r
				]) > 1 || c(e, t);
			});
		}, t && (i[e] = t(i[e])));
	}
	function c(e, t) {
		try {
			l(r[e](t));
		} catch (e) {
			f(a[0][3], e);
		}
	}
	function l(e) {
		e.value instanceof B ? Promise.resolve(e.value.v).then(u, d) : f(a[0][2], e);
	}
	function u(e) {
		c("next", e);
	}
	function d(e) {
		c("throw", e);
	}
	function f(e, t) {
		e(t), a.shift(), a.length && c(a[0][0], a[0][1]);
	}
};
function qi(e, t) {
	return Pi(e, (e) => {
		switch (e.methodKind) {
			case "unary": return Ji(t, e);
			case "server_streaming": return Yi(t, e);
			case "client_streaming": return Xi(t, e);
			case "bidi_streaming": return Zi(t, e);
			default: return null;
		}
	});
}
function Ji(e, t) {
	return async (n, r) => {
		var i, a;
		let o = await e.unary(t, r?.signal, r?.timeoutMs, r?.headers, n, r?.contextValues);
		return (i = r?.onHeader) == null || i.call(r, o.header), (a = r?.onTrailer) == null || a.call(r, o.trailer), o.message;
	};
}
function Yi(e, t) {
	return (n, r) => Qi(e.stream(t, r?.signal, r?.timeoutMs, r?.headers, Ui([n]), r?.contextValues), r);
}
function Xi(t, n) {
	return async (r, i) => {
		var a, o, s, c, l, u;
		let d = await t.stream(n, i?.signal, i?.timeoutMs, i?.headers, r, i?.contextValues);
		(l = i?.onHeader) == null || l.call(i, d.header);
		let f, ee = 0;
		try {
			for (var te = !0, p = Wi(d.message), ne; ne = await p.next(), a = ne.done, !a; te = !0) c = ne.value, te = !1, f = c, ee++;
		} catch (e) {
			o = { error: e };
		} finally {
			try {
				!te && !a && (s = p.return) && await s.call(p);
			} finally {
				if (o) throw o.error;
			}
		}
		if (!f) throw new R("protocol error: missing response message", e.Unimplemented);
		if (ee > 1) throw new R("protocol error: received extra messages for client streaming method", e.Unimplemented);
		return (u = i?.onTrailer) == null || u.call(i, d.trailer), f;
	};
}
function Zi(e, t) {
	return (n, r) => Qi(e.stream(t, r?.signal, r?.timeoutMs, r?.headers, n, r?.contextValues), r);
}
function Qi(e, t) {
	let n = (function() {
		return Ki(this, arguments, function* () {
			var n, r;
			let i = yield B(e);
			(n = t?.onHeader) == null || n.call(t, i.header), yield B(yield* Gi(Wi(i.message))), (r = t?.onTrailer) == null || r.call(t, i.trailer);
		});
	})()[Symbol.asyncIterator]();
	return { [Symbol.asyncIterator]: () => ({ next: () => n.next() }) };
}
// ../../node_modules/@connectrpc/connect/dist/esm/protocol/signals.js
function $i(...e) {
	let t = new AbortController(), n = e.filter((e) => e !== void 0).concat(t.signal);
	for (let e of n) {
		if (e.aborted) {
			r.apply(e);
			break;
		}
		e.addEventListener("abort", r);
	}
	function r() {
		t.signal.aborted || t.abort(ta(this));
		for (let e of n) e.removeEventListener("abort", r);
	}
	return t;
}
function ea(t) {
	let n = new AbortController(), r = () => {
		n.abort(new R("the operation timed out", e.DeadlineExceeded));
	}, i;
	return t !== void 0 && (t <= 0 ? r() : i = setTimeout(r, t)), {
		signal: n.signal,
		cleanup: () => clearTimeout(i)
	};
}
function ta(e) {
	if (!e.aborted) return;
	if (e.reason !== void 0) return e.reason;
	let t = /* @__PURE__ */ Error("This operation was aborted");
	return t.name = "AbortError", t;
}
// ../../node_modules/@connectrpc/connect/dist/esm/context-values.js
function na() {
	return {
		get(e) {
			return e.id in this ? this[e.id] : e.defaultValue;
		},
		set(e, t) {
			return this[e.id] = t, this;
		},
		delete(e) {
			return delete this[e.id], this;
		}
	};
}
// ../../node_modules/@connectrpc/connect/dist/esm/protocol-grpc-web/trailer.js
function ra(e) {
	let t = new Headers(), n = new TextDecoder().decode(e).split("\r\n");
	for (let e of n) {
		if (e === "") continue;
		let n = e.indexOf(":");
		if (n > 0) {
			let r = e.substring(0, n).trim(), i = e.substring(n + 1).trim();
			t.append(r, i);
		}
	}
	return t;
}
// ../../node_modules/@connectrpc/connect/dist/esm/protocol-grpc/headers.js
var ia = "Content-Type", aa = "Grpc-Timeout", oa = "Grpc-Status", sa = "Grpc-Status-Details-Bin", ca = "User-Agent", la = "X-User-Agent", ua = "X-Grpc-Web", da = "application/grpc-web+proto", fa = "application/grpc-web+json";
// ../../node_modules/@bufbuild/protobuf/dist/esm/codegenv2/service.js
function pa(e, t, ...n) {
	if (n.length > 0) throw Error();
	return e.services[t];
}
var ma = /*@__PURE__*/ N(/* @__PURE__ */ F("CgxzdGF0dXMucHJvdG8SCmdvb2dsZS5ycGMiTgoGU3RhdHVzEgwKBGNvZGUYASABKAUSDwoHbWVzc2FnZRgCIAEoCRIlCgdkZXRhaWxzGAMgAygLMhQuZ29vZ2xlLnByb3RvYnVmLkFueUJeCg5jb20uZ29vZ2xlLnJwY0ILU3RhdHVzUHJvdG9QAVo3Z29vZ2xlLmdvbGFuZy5vcmcvZ2VucHJvdG8vZ29vZ2xlYXBpcy9ycGMvc3RhdHVzO3N0YXR1c6ICA1JQQ2IGcHJvdG8z", [ar]), 0), ha = "Content-Type", ga = "Content-Length", _a = "Content-Encoding", va = "Accept-Encoding", ya = "Connect-Timeout-Ms", ba = "Connect-Protocol-Version", xa = "User-Agent";
function Sa(t) {
	let n = t.get(sa);
	if (n != null) {
		let e = Mi(n, ma);
		if (e.code == 0) return;
		let r = new R(e.message, e.code, t);
		return r.details = e.details.map((e) => ({
			type: e.typeUrl.substring(e.typeUrl.lastIndexOf("/") + 1),
			value: e.value
		})), r.isWireError = !0, r;
	}
	let r = t.get(oa);
	if (r != null) {
		if (r === "0") return;
		let n = parseInt(r, 10), i;
		return i = n in e ? new R(decodeURIComponent(t.get("Grpc-Message") ?? ""), n, t) : new R(`invalid grpc-status: ${r}`, e.Internal, t), i.isWireError = !0, i;
	}
}
// ../../node_modules/@connectrpc/connect/dist/esm/protocol/create-method-url.js
function Ca(e, t) {
	return e.toString().replace(/\/?$/, `/${t.parent.typeName}/${t.name}`);
}
// ../../node_modules/@connectrpc/connect/dist/esm/protocol/normalize.js
function wa(e, t) {
	return y(e, t);
}
function Ta(e, t) {
	function n(t) {
		return t.done === !0 ? t : {
			done: t.done,
			value: wa(e, t.value)
		};
	}
	return { [Symbol.asyncIterator]() {
		let e = t[Symbol.asyncIterator](), r = { next: () => e.next().then(n) };
		return e.throw !== void 0 && (r.throw = (t) => e.throw(t).then(n)), e.return !== void 0 && (r.return = (t) => e.return(t).then(n)), r;
	} };
}
// ../../node_modules/@connectrpc/connect/dist/esm/interceptor.js
function Ea(e, t) {
	if (!t) return e;
	for (let n of t.concat().reverse()) e = n(e);
	return e;
}
// ../../node_modules/@connectrpc/connect/dist/esm/protocol/serialization.js
function Da(e) {
	let t = Object.assign({}, e);
	return t.ignoreUnknownFields ??= !0, t;
}
function Oa(e, t, n, r) {
	let i = t ? ka(e.input, r) : Aa(e.input, n);
	return {
		parse: (t ? ka(e.output, r) : Aa(e.output, n)).parse,
		serialize: i.serialize
	};
}
function ka(t, n) {
	return {
		parse(r) {
			try {
				return Yn(t, r, n);
			} catch (t) {
				throw new R(`parse binary: ${t instanceof Error ? t.message : String(t)}`, e.Internal);
			}
		},
		serialize(r) {
			try {
				return ur(t, r, n);
			} catch (t) {
				throw new R(`serialize binary: ${t instanceof Error ? t.message : String(t)}`, e.Internal);
			}
		}
	};
}
function Aa(t, n) {
	let r = n?.textEncoder ?? new TextEncoder(), i = n?.textDecoder ?? new TextDecoder(), a = Da(n);
	return {
		parse(n) {
			try {
				return ti(t, i.decode(n), a);
			} catch (t) {
				throw R.from(t, e.InvalidArgument);
			}
		},
		serialize(n) {
			try {
				let e = zr(t, n, a);
				return r.encode(e);
			} catch (t) {
				throw R.from(t, e.Internal);
			}
		}
	};
}
// ../../node_modules/@connectrpc/connect/dist/esm/protocol-connect/content-type.js
var ja = /^application\/(connect\+)?(?:(json)(?:; ?charset=utf-?8)?|(proto))$/i, Ma = "application/proto", Na = "application/json", Pa = "application/connect+proto", Fa = "application/connect+json";
function Ia(e) {
	let t = e?.match(ja);
	if (t) return {
		stream: !!t[1],
		binary: !!t[3]
	};
}
function La(e, t, n) {
	if (t && new Headers(t).forEach((e, t) => n.metadata.append(t, e)), typeof e != "object" || !e || Array.isArray(e)) throw n;
	let r = n.code;
	"code" in e && typeof e.code == "string" && (r = Ai(e.code) ?? r);
	let i = e.message;
	if (i != null && typeof i != "string") throw n;
	let a = new R(i ?? "", r, t);
	if (a.isWireError = !0, "details" in e && Array.isArray(e.details)) for (let t of e.details) {
		if (typeof t != "object" || !t || Array.isArray(t) || typeof t.type != "string" || typeof t.value != "string") throw n;
		try {
			a.details.push({
				type: t.type,
				value: gt(t.value),
				debug: t.debug
			});
		} catch {
			throw n;
		}
	}
	return a;
}
// ../../node_modules/@connectrpc/connect/dist/esm/protocol-connect/end-stream.js
function Ra(t) {
	let n = new R("invalid end stream", e.Unknown), r;
	try {
		r = JSON.parse(typeof t == "string" ? t : new TextDecoder().decode(t));
	} catch {
		throw n;
	}
	if (typeof r != "object" || !r || Array.isArray(r)) throw n;
	let i = new Headers();
	if ("metadata" in r) {
		if (typeof r.metadata != "object" || r.metadata == null || Array.isArray(r.metadata)) throw n;
		for (let [e, t] of Object.entries(r.metadata)) {
			if (!Array.isArray(t) || t.some((e) => typeof e != "string")) throw n;
			for (let n of t) i.append(e, n);
		}
	}
	return {
		metadata: i,
		error: "error" in r && r.error != null ? La(r.error, i, n) : void 0
	};
}
// ../../node_modules/@connectrpc/connect/dist/esm/protocol-connect/http-status.js
function za(t) {
	switch (t) {
		case 400: return e.Internal;
		case 401: return e.Unauthenticated;
		case 403: return e.PermissionDenied;
		case 404: return e.Unimplemented;
		case 429: return e.Unavailable;
		case 502: return e.Unavailable;
		case 503: return e.Unavailable;
		case 504: return e.Unavailable;
		default: return e.Unknown;
	}
}
// ../../node_modules/@connectrpc/connect/dist/esm/protocol-connect/trailer-mux.js
function Ba(e) {
	let t = new Headers(), n = new Headers();
	return e.forEach((e, r) => {
		r.toLowerCase().startsWith("trailer-") ? n.append(r.substring(8), e) : t.append(r, e);
	}), [t, n];
}
// ../../node_modules/@connectrpc/connect/dist/esm/protocol-connect/request-header.js
function Va(e, t, n, r, i) {
	let a = new Headers(r ?? {});
	return n !== void 0 && a.set(ya, `${n}`), a.set(ha, e == "unary" ? t ? Ma : Na : t ? Pa : Fa), a.set(ba, "1"), !a.has("User-Agent") && i && a.set(xa, "connect-es/2.2.0"), a;
}
// ../../node_modules/@connectrpc/connect/dist/esm/protocol-connect/validate-response.js
function Ha(t, n, r, i) {
	let a = i.get(ha), o = Ia(a);
	if (r !== 200) {
		let e = new R(`HTTP ${r}`, za(r), i);
		if (t == "unary" && o && !o.binary) return {
			isUnaryError: !0,
			unaryError: e
		};
		throw e;
	}
	let s = {
		binary: n,
		stream: t !== "unary"
	};
	if (o?.binary !== s.binary || o.stream !== s.stream) throw new R(`unsupported content type ${a}`, o === void 0 ? e.Unknown : e.Internal, i);
	return { isUnaryError: !1 };
}
// ../../node_modules/@connectrpc/connect/dist/esm/protocol-connect/get-request.js
var Ua = "application/";
function Wa(e, t) {
	return t ? _t(e, "url") : encodeURIComponent(new TextDecoder().decode(e));
}
function Ga(e, t, n) {
	let r = "?connect=v1", i = "", a = e.header.get(_a);
	a !== null && a !== "identity" && (i = "&compression=" + encodeURIComponent(a), n = !0), n && (r += "&base64=1"), r += i;
	let o = e.header.get(ha);
	o?.indexOf(Ua) === 0 && (r += "&encoding=" + encodeURIComponent(o.slice(12))), r += "&message=" + Wa(t, n);
	let s = e.url + r, c = new Headers(e.header);
	for (let e of [
		ba,
		ha,
		ga,
		_a,
		va
	]) c.delete(e);
	return Object.assign(Object.assign({}, e), {
		requestMethod: "GET",
		url: s,
		header: c
	});
}
// ../../node_modules/@connectrpc/connect/dist/esm/protocol/run-call.js
function Ka(e) {
	let t = Ea(e.next, e.interceptors), [n, r, i] = Ja(e);
	return t(Object.assign(Object.assign({}, e.req), {
		message: wa(e.req.method.input, e.req.message),
		signal: n
	})).then((e) => (i(), e), r);
}
function qa(e) {
	let t = Ea(e.next, e.interceptors), [n, r, i] = Ja(e), a = Object.assign(Object.assign({}, e.req), {
		message: Ta(e.req.method.input, e.req.message),
		signal: n
	}), o = !1;
	return n.addEventListener("abort", function() {
		var t, n;
		let r = e.req.message[Symbol.asyncIterator]();
		o || (t = r.throw) == null || t.call(r, this.reason).catch(() => {}), (n = r.return) == null || n.call(r).catch(() => {});
	}), t(a).then((e) => Object.assign(Object.assign({}, e), { message: { [Symbol.asyncIterator]() {
		let t = e.message[Symbol.asyncIterator]();
		return { next() {
			return !o && n.aborted ? r(ta(n)) : t.next().then((e) => (e.done == 1 && (o = !0, i()), e), r);
		} };
	} } }), r);
}
function Ja(t) {
	let { signal: n, cleanup: r } = ea(t.timeoutMs), i = $i(t.signal, n);
	return [
		i.signal,
		function(t) {
			let n = i.signal.aborted ? R.from(ta(i.signal), e.Canceled) : R.from(t);
			return i.abort(n), r(), Promise.reject(n);
		},
		function() {
			r(), i.abort();
		}
	];
}
// ../../sdk/ts/dist/abort.js
var Ya = /* @__PURE__ */ new WeakMap();
function Xa(e, t) {
	let n = Ya.get(e) ?? /* @__PURE__ */ new Set(), r = () => t();
	return n.add(r), n.size === 1 && (Ya.set(e, n), e.addEventListener("abort", Za)), () => {
		n.delete(r), n.size === 0 && (Ya.delete(e), e.removeEventListener("abort", Za));
	};
}
function Za() {
	for (let e of [...Ya.get(this) ?? []]) e();
}
function V(e, t) {
	return t === void 0 ? () => {} : t.aborted ? (e.abort(t.reason), () => {}) : Xa(t, () => e.abort(t.reason));
}
function H(e, t) {
	return t === void 0 ? e : new Promise((n, r) => {
		if (t.aborted) {
			r(t.reason), e.catch(() => {});
			return;
		}
		let i = Xa(t, () => r(t.reason));
		e.then(n, r).finally(i);
	});
}
var U = class extends Error {
	reason;
	results;
	constructor(e, t, n) {
		let r = e instanceof Error ? e.message : String(e);
		super(t === void 0 ? r : `${r}; last failure: ${t.message}`, { cause: t }), this.name = e instanceof Error ? e.name : "AbortError", this.reason = e, this.results = n;
	}
};
function Qa(e, t) {
	return t === void 0 ? e.reason : new U(e.reason, t);
}
// ../../node_modules/@connectrpc/connect-web/dist/esm/assert-fetch-api.js
function $a() {
	try {
		new Headers();
	} catch {
		throw Error("connect-web requires the fetch API. Are you running on an old version of Node.js? Node.js is not supported in Connect for Web - please stay tuned for Connect for Node.");
	}
}
// ../../node_modules/@connectrpc/connect-web/dist/esm/connect-transport.js
var W = function(e) {
	return this instanceof W ? (this.v = e, this) : new W(e);
}, eo = function(e, t, n) {
	if (!Symbol.asyncIterator) throw TypeError("Symbol.asyncIterator is not defined.");
	var r = n.apply(e, t || []), i, a = [];
	return i = Object.create((typeof AsyncIterator == "function" ? AsyncIterator : Object).prototype), s("next"), s("throw"), s("return", o), i[Symbol.asyncIterator] = function() {
		return this;
	}, i;
	function o(e) {
		return function(t) {
			return Promise.resolve(t).then(e, d);
		};
	}
	function s(e, t) {
		r[e] && (i[e] = function(t) {
			return new Promise(function(n, r) {
				a.push([
					e,
					t,
					n,
					r
				]) > 1 || c(e, t);
			});
		}, t && (i[e] = t(i[e])));
	}
	function c(e, t) {
		try {
			l(r[e](t));
		} catch (e) {
			f(a[0][3], e);
		}
	}
	function l(e) {
		e.value instanceof W ? Promise.resolve(e.value.v).then(u, d) : f(a[0][2], e);
	}
	function u(e) {
		c("next", e);
	}
	function d(e) {
		c("throw", e);
	}
	function f(e, t) {
		e(t), a.shift(), a.length && c(a[0][0], a[0][1]);
	}
}, to = { redirect: "error" };
function no(t) {
	$a();
	let n = t.useBinaryFormat ?? !1;
	return {
		async unary(e, r, i, a, o, s) {
			let { serialize: c, parse: l } = Oa(e, n, t.jsonOptions, t.binaryOptions);
			return i = i === void 0 ? t.defaultTimeoutMs : i <= 0 ? void 0 : i, await Ka({
				interceptors: t.interceptors,
				signal: r,
				timeoutMs: i,
				req: {
					stream: !1,
					service: e.parent,
					method: e,
					requestMethod: "POST",
					url: Ca(t.baseUrl, e),
					header: Va(e.methodKind, n, i, a, !1),
					contextValues: s ?? na(),
					message: o
				},
				next: async (r) => {
					let i = t.useHttpGet === !0 && e.idempotency === In.NO_SIDE_EFFECTS, a = null;
					i ? r = Ga(r, c(r.message), n) : a = c(r.message);
					let o = await (t.fetch ?? globalThis.fetch)(r.url, Object.assign(Object.assign({}, to), {
						method: r.requestMethod,
						headers: r.header,
						signal: r.signal,
						body: a
					})), { isUnaryError: s, unaryError: u } = Ha(e.methodKind, n, o.status, o.headers);
					if (s) throw La(await o.json(), Ni(...Ba(o.headers)), u);
					let [d, f] = Ba(o.headers);
					return {
						stream: !1,
						service: e.parent,
						method: e,
						header: d,
						message: n ? l(new Uint8Array(await o.arrayBuffer())) : ni(e.output, await o.json(), Da(t.jsonOptions)),
						trailer: f
					};
				}
			});
		},
		async stream(r, i, a, o, s, c) {
			let { serialize: l, parse: u } = Oa(r, n, t.jsonOptions, t.binaryOptions);
			function d(t, n, r, i) {
				return eo(this, arguments, function* () {
					let a = Ri(t).getReader(), o = !1;
					for (;;) {
						let t = yield W(a.read());
						if (t.done) break;
						let { flags: i, data: s } = t.value;
						if ((i & 1) == 1) throw new R("protocol error: received unsupported compressed output", e.Internal);
						if ((i & 2) == 2) {
							o = !0;
							let e = Ra(s);
							if (e.error) {
								let t = e.error;
								throw r.forEach((e, n) => {
									t.metadata.append(n, e);
								}), t;
							}
							e.metadata.forEach((e, t) => n.set(t, e));
						} else yield yield W(u(s));
					}
					if ("throwIfAborted" in i && i.throwIfAborted(), !o) throw "missing EndStreamResponse";
				});
			}
			async function f(e) {
				if (r.methodKind != "server_streaming") throw "The fetch API does not support streaming request bodies";
				let t = await e[Symbol.asyncIterator]().next();
				if (t.done == 1) throw "missing request message";
				return zi(0, l(t.value));
			}
			return a = a === void 0 ? t.defaultTimeoutMs : a <= 0 ? void 0 : a, await qa({
				interceptors: t.interceptors,
				timeoutMs: a,
				signal: i,
				req: {
					stream: !0,
					service: r.parent,
					method: r,
					requestMethod: "POST",
					url: Ca(t.baseUrl, r),
					header: Va(r.methodKind, n, a, o, !1),
					contextValues: c ?? na(),
					message: s
				},
				next: async (e) => {
					let i = await (t.fetch ?? globalThis.fetch)(e.url, Object.assign(Object.assign({}, to), {
						method: e.requestMethod,
						headers: e.header,
						signal: e.signal,
						body: await f(e.message)
					}));
					if (Ha(r.methodKind, n, i.status, i.headers), i.body === null) throw "missing response body";
					let a = new Headers();
					return Object.assign(Object.assign({}, e), {
						header: i.headers,
						trailer: a,
						message: d(i.body, a, i.headers, e.signal)
					});
				}
			});
		}
	};
}
// ../../node_modules/@connectrpc/connect/dist/esm/protocol-grpc/validate-trailer.js
function ro(t, n) {
	let r = Sa(t);
	if (r) throw n.forEach((e, t) => {
		r.metadata.append(t, e);
	}), r;
	if (!n.has("Grpc-Status") && !t.has("Grpc-Status")) throw new R("protocol error: missing status", e.Internal);
}
// ../../node_modules/@connectrpc/connect/dist/esm/protocol-grpc-web/request-header.js
function io(e, t, n, r) {
	let i = new Headers(n ?? {});
	i.set(ia, e ? da : fa), i.set(ua, "1");
	let a = i.get("User-Agent") ?? i.get("X-User-Agent") ?? "connect-es/2.2.0";
	return i.set(la, a), r && i.set(ca, a), t !== void 0 && i.set(aa, `${t}m`), i;
}
// ../../node_modules/@connectrpc/connect/dist/esm/protocol-grpc/http-status.js
function ao(t) {
	switch (t) {
		case 400: return e.Internal;
		case 401: return e.Unauthenticated;
		case 403: return e.PermissionDenied;
		case 404: return e.Unimplemented;
		case 429: return e.Unavailable;
		case 502: return e.Unavailable;
		case 503: return e.Unavailable;
		case 504: return e.Unavailable;
		default: return e.Unknown;
	}
}
// ../../node_modules/@connectrpc/connect/dist/esm/protocol-grpc-web/validate-response.js
function oo(e, t) {
	if (e >= 200 && e < 300) return {
		foundStatus: t.has(oa),
		headerError: Sa(t)
	};
	throw new R(decodeURIComponent(t.get("Grpc-Message") ?? `HTTP ${e}`), ao(e), t);
}
// ../../node_modules/@connectrpc/connect-web/dist/esm/grpc-web-transport.js
var G = function(e) {
	return this instanceof G ? (this.v = e, this) : new G(e);
}, so = function(e, t, n) {
	if (!Symbol.asyncIterator) throw TypeError("Symbol.asyncIterator is not defined.");
	var r = n.apply(e, t || []), i, a = [];
	return i = Object.create((typeof AsyncIterator == "function" ? AsyncIterator : Object).prototype), s("next"), s("throw"), s("return", o), i[Symbol.asyncIterator] = function() {
		return this;
	}, i;
	function o(e) {
		return function(t) {
			return Promise.resolve(t).then(e, d);
		};
	}
	function s(e, t) {
		r[e] && (i[e] = function(t) {
			return new Promise(function(n, r) {
				a.push([
					e,
					t,
					n,
					r
				]) > 1 || c(e, t);
			});
		}, t && (i[e] = t(i[e])));
	}
	function c(e, t) {
		try {
			l(r[e](t));
		} catch (e) {
			f(a[0][3], e);
		}
	}
	function l(e) {
		e.value instanceof G ? Promise.resolve(e.value.v).then(u, d) : f(a[0][2], e);
	}
	function u(e) {
		c("next", e);
	}
	function d(e) {
		c("throw", e);
	}
	function f(e, t) {
		e(t), a.shift(), a.length && c(a[0][0], a[0][1]);
	}
}, co = { redirect: "error" };
function lo(t) {
	$a();
	let n = t.useBinaryFormat ?? !0;
	return {
		async unary(r, i, a, o, s, c) {
			let { serialize: l, parse: u } = Oa(r, n, t.jsonOptions, t.binaryOptions);
			return a = a === void 0 ? t.defaultTimeoutMs : a <= 0 ? void 0 : a, await Ka({
				interceptors: t.interceptors,
				signal: i,
				timeoutMs: a,
				req: {
					stream: !1,
					service: r.parent,
					method: r,
					requestMethod: "POST",
					url: Ca(t.baseUrl, r),
					header: io(n, a, o, !1),
					contextValues: c ?? na(),
					message: s
				},
				next: async (n) => {
					let i = await (t.fetch ?? globalThis.fetch)(n.url, Object.assign(Object.assign({}, co), {
						method: n.requestMethod,
						headers: n.header,
						signal: n.signal,
						body: zi(0, l(n.message))
					})), { headerError: a } = oo(i.status, i.headers);
					if (!i.body) throw a === void 0 ? "missing response body" : a;
					let o = Ri(i.body).getReader(), s, c;
					for (;;) {
						let t = await o.read();
						if (t.done) break;
						let { flags: n, data: r } = t.value;
						if ((n & 1) == 1) throw new R("protocol error: received unsupported compressed output", e.Internal);
						if (n === 128) {
							if (s !== void 0) throw "extra trailer";
							s = ra(r);
						} else {
							if (c !== void 0) throw new R("extra message", e.Unimplemented);
							c = u(r);
						}
					}
					if (s === void 0) throw a === void 0 ? new R("missing trailer", i.headers.has("Grpc-Status") ? e.Unimplemented : e.Unknown) : a;
					if (ro(s, i.headers), c === void 0) throw new R("missing message", s.has("Grpc-Status") ? e.Unimplemented : e.Unknown);
					return {
						stream: !1,
						service: r.parent,
						method: r,
						header: i.headers,
						message: c,
						trailer: s
					};
				}
			});
		},
		async stream(e, r, i, a, o, s) {
			let { serialize: c, parse: l } = Oa(e, n, t.jsonOptions, t.binaryOptions);
			function u(e, t, n, r, i) {
				return so(this, arguments, function* () {
					let a = Ri(e).getReader();
					if (t) {
						if (!(yield G(a.read())).done) throw "extra data for trailers-only";
						return yield G(void 0);
					}
					let o = !1;
					for (;;) {
						let e = yield G(a.read());
						if (e.done) break;
						let { flags: t, data: i } = e.value;
						if ((t & 128) == 128) {
							if (o) throw "extra trailer";
							o = !0;
							let e = ra(i);
							ro(e, r), e.forEach((e, t) => n.set(t, e));
						} else {
							if (o) throw "extra message";
							yield yield G(l(i));
						}
					}
					if ("throwIfAborted" in i && i.throwIfAborted(), !o) throw "missing trailer";
				});
			}
			async function d(t) {
				if (e.methodKind != "server_streaming") throw "The fetch API does not support streaming request bodies";
				let n = await t[Symbol.asyncIterator]().next();
				if (n.done == 1) throw "missing request message";
				return zi(0, c(n.value));
			}
			return i = i === void 0 ? t.defaultTimeoutMs : i <= 0 ? void 0 : i, qa({
				interceptors: t.interceptors,
				signal: r,
				timeoutMs: i,
				req: {
					stream: !0,
					service: e.parent,
					method: e,
					requestMethod: "POST",
					url: Ca(t.baseUrl, e),
					header: io(n, i, a, !1),
					contextValues: s ?? na(),
					message: o
				},
				next: async (e) => {
					let n = await (t.fetch ?? globalThis.fetch)(e.url, Object.assign(Object.assign({}, co), {
						method: e.requestMethod,
						headers: e.header,
						signal: e.signal,
						body: await d(e.message)
					})), { foundStatus: r, headerError: i } = oo(n.status, n.headers);
					if (i != null) throw i;
					if (!n.body) throw "missing response body";
					let a = new Headers();
					return Object.assign(Object.assign({}, e), {
						header: n.headers,
						trailer: a,
						message: u(n.body, r, a, n.headers, e.signal)
					});
				}
			});
		}
	};
}
// ../../gen/ts/src/parley/v1/error_pb.js
var uo = /*@__PURE__*/ F("ChVwYXJsZXkvdjEvZXJyb3IucHJvdG8SCXBhcmxleS52MSLWAQoLRXJyb3JEZXRhaWwSJgoGcmVhc29uGAEgASgOMhYucGFybGV5LnYxLkVycm9yUmVhc29uEhEKCXJldHJ5YWJsZRgCIAEoCBINCgVmaWVsZBgDIAEoCRINCgVsaW1pdBgEIAEoAxIuCgtyZXRyeV9hZnRlchgFIAEoCzIZLmdvb2dsZS5wcm90b2J1Zi5EdXJhdGlvbhISCgpyZXF1ZXN0X2lkGAYgASgJEioKCXBvc2l0aW9ucxgHIAMoCzIXLnBhcmxleS52MS5MYXN0UG9zaXRpb24iPgoMTGFzdFBvc2l0aW9uEhIKCmNoYW5uZWxfaWQYASABKAkSCwoDc2VxGAIgASgDEg0KBWVwb2NoGAMgASgJKpQICgtFcnJvclJlYXNvbhIcChhFUlJPUl9SRUFTT05fVU5TUEVDSUZJRUQQABIeChpFUlJPUl9SRUFTT05fSU5WQUxJRF9GSUVMRBABEiIKHkVSUk9SX1JFQVNPTl9NQUxGT1JNRURfUkVRVUVTVBACEh4KGkVSUk9SX1JFQVNPTl9UT0tFTl9JTlZBTElEEAMSIwofRVJST1JfUkVBU09OX0NBUEFCSUxJVFlfTUlTU0lORxAEEiAKHEVSUk9SX1JFQVNPTl9TRU5ERVJfTUlTTUFUQ0gQBRIbChdFUlJPUl9SRUFTT05fTk9UX1NFTkRFUhAGEiIKHkVSUk9SX1JFQVNPTl9NRVNTQUdFX05PVF9GT1VORBAHEiEKHUVSUk9SX1JFQVNPTl9NRVNTQUdFX1JFQ0FMTEVEEAgSJQohRVJST1JfUkVBU09OX0NMSUVOVF9NU0dfSURfUkVVU0VEEAkSJgoiRVJST1JfUkVBU09OX1BPU0lUSU9OX09VVF9PRl9SQU5HRRAKEiMKH0VSUk9SX1JFQVNPTl9QQUdFX1RPS0VOX0lOVkFMSUQQCxIjCh9FUlJPUl9SRUFTT05fUEFHRV9UT0tFTl9GT1JFSUdOEAwSFwoTRVJST1JfUkVBU09OX1JFU1lOQxANEiIKHkVSUk9SX1JFQVNPTl9TRVNTSU9OX05PVF9GT1VORBAOEhoKFkVSUk9SX1JFQVNPTl9UT09fTEFSR0UQDxIfChtFUlJPUl9SRUFTT05fTElNSVRfRVhDRUVERUQQEBIeChpFUlJPUl9SRUFTT05fVU5JTVBMRU1FTlRFRBAREhsKF0VSUk9SX1JFQVNPTl9OT1RfTUVNQkVSEBISHwobRVJST1JfUkVBU09OX0NIQU5ORUxfRVhJU1RTEBMSIgoeRVJST1JfUkVBU09OX0NIQU5ORUxfTk9UX0ZPVU5EEBQSHQoZRVJST1JfUkVBU09OX1JBVEVfTElNSVRFRBBkEiIKHkVSUk9SX1JFQVNPTl9TVE9SRV9VTkFWQUlMQUJMRRBlEiAKHEVSUk9SX1JFQVNPTl9PVVRDT01FX1VOS05PV04QZhIeChpFUlJPUl9SRUFTT05fQkFUQ0hfQUJPUlRFRBBnEh4KGkVSUk9SX1JFQVNPTl9TTE9XX0NPTlNVTUVSEGgSHgoaRVJST1JfUkVBU09OX1RPS0VOX0VYUElSRUQQaRIeChpFUlJPUl9SRUFTT05fU0hVVFRJTkdfRE9XThBqEiIKHkVSUk9SX1JFQVNPTl9ERUFETElORV9FWENFRURFRBBrEhkKFUVSUk9SX1JFQVNPTl9JTlRFUk5BTBBsEh8KG0VSUk9SX1JFQVNPTl9TVFJFQU1fU1RBTExFRBBtQp0BChRkZXYucGFybGV5LnBhcmxleS52MUIKRXJyb3JQcm90b1ABWjRnaXRodWIuY29tL3BhcmxleWhxL3BhcmxleS9nZW4vZ28vcGFybGV5L3YxO3BhcmxleXYxogIDUFhYqgIJUGFybGV5LlYxygIJUGFybGV5XFYx4gIVUGFybGV5XFYxXEdQQk1ldGFkYXRh6gIKUGFybGV5OjpWMWIGcHJvdG8z", [ir]), fo = /*@__PURE__*/ N(uo, 0), po = /*@__PURE__*/ En(/* @__PURE__ */ Tn(uo, 0)), K = /*@__PURE__*/ F("ChdwYXJsZXkvdjEvbWVzc2FnZS5wcm90bxIJcGFybGV5LnYxIuYCCgdNZXNzYWdlEg4KBm1zZ19pZBgBIAEoCRISCgpjaGFubmVsX2lkGAIgASgJEgsKA3NlcRgDIAEoAxINCgVjb3VudBgEIAEoAxIPCgdmcm9tX2lkGAUgASgJEhAKCG1zZ190eXBlGAYgASgJEg8KB2NvbnRlbnQYByABKAkSMgoIbWV0YWRhdGEYCCADKAsyIC5wYXJsZXkudjEuTWVzc2FnZS5NZXRhZGF0YUVudHJ5EhUKDWNsaWVudF9tc2dfaWQYCSABKAkSLAoIbXNnX3RpbWUYCiABKAsyGi5nb29nbGUucHJvdG9idWYuVGltZXN0YW1wEigKBnN0YXR1cxgLIAEoDjIYLnBhcmxleS52MS5NZXNzYWdlU3RhdHVzEhMKC2NoYW5nZWRfc2VxGAwgASgDGi8KDU1ldGFkYXRhRW50cnkSCwoDa2V5GAEgASgJEg0KBXZhbHVlGAIgASgJOgI4ASLjAQoSU2VuZE1lc3NhZ2VSZXF1ZXN0EhIKCmNoYW5uZWxfaWQYASABKAkSDwoHY29udGVudBgCIAEoCRIVCg1jbGllbnRfbXNnX2lkGAMgASgJEhAKCG1zZ190eXBlGAQgASgJEj0KCG1ldGFkYXRhGAUgAygLMisucGFybGV5LnYxLlNlbmRNZXNzYWdlUmVxdWVzdC5NZXRhZGF0YUVudHJ5Eg8KB2Zyb21faWQYBiABKAkaLwoNTWV0YWRhdGFFbnRyeRILCgNrZXkYASABKAkSDQoFdmFsdWUYAiABKAk6AjgBIqgBChNTZW5kTWVzc2FnZVJlc3BvbnNlEg4KBm1zZ19pZBgBIAEoCRILCgNzZXEYAiABKAMSDQoFY291bnQYAyABKAMSLAoIbXNnX3RpbWUYBCABKAsyGi5nb29nbGUucHJvdG9idWYuVGltZXN0YW1wEhUKDWNsaWVudF9tc2dfaWQYBSABKAkSDQoFZXBvY2gYBiABKAkSEQoJZHVwbGljYXRlGAcgASgIIkYKE1NlbmRNZXNzYWdlc1JlcXVlc3QSLwoIbWVzc2FnZXMYASADKAsyHS5wYXJsZXkudjEuU2VuZE1lc3NhZ2VSZXF1ZXN0Ij4KFFNlbmRNZXNzYWdlc1Jlc3BvbnNlEiYKB3Jlc3VsdHMYASADKAsyFS5wYXJsZXkudjEuU2VuZFJlc3VsdCJtCgpTZW5kUmVzdWx0Ei4KBHNlbnQYASABKAsyHi5wYXJsZXkudjEuU2VuZE1lc3NhZ2VSZXNwb25zZUgAEiUKBWVycm9yGAIgASgLMhQucGFybGV5LnYxLkl0ZW1FcnJvckgAQggKBnJlc3VsdCKvAQoTTGlzdE1lc3NhZ2VzUmVxdWVzdBISCgpjaGFubmVsX2lkGAEgASgJEhYKCWFmdGVyX3NlcRgCIAEoA0gAiAEBEhcKCmJlZm9yZV9zZXEYAyABKANIAYgBARIPCgdtaW5fc2VxGAQgASgDEhEKCXBhZ2Vfc2l6ZRgFIAEoBRISCgpwYWdlX3Rva2VuGAYgASgJQgwKCl9hZnRlcl9zZXFCDQoLX2JlZm9yZV9zZXEidgoUTGlzdE1lc3NhZ2VzUmVzcG9uc2USJAoIbWVzc2FnZXMYASADKAsyEi5wYXJsZXkudjEuTWVzc2FnZRIXCg9uZXh0X3BhZ2VfdG9rZW4YAiABKAkSEAoIaGVhZF9zZXEYAyABKAMSDQoFZXBvY2gYBCABKAkiNwoRR2V0TWVzc2FnZVJlcXVlc3QSEgoKY2hhbm5lbF9pZBgBIAEoCRIOCgZtc2dfaWQYAiABKAkiOQoSR2V0TWVzc2FnZVJlc3BvbnNlEiMKB21lc3NhZ2UYASABKAsyEi5wYXJsZXkudjEuTWVzc2FnZSJgChJFZGl0TWVzc2FnZVJlcXVlc3QSEgoKY2hhbm5lbF9pZBgBIAEoCRIOCgZtc2dfaWQYAiABKAkSDwoHY29udGVudBgDIAEoCRIVCg1jbGllbnRfbXNnX2lkGAQgASgJInIKE0VkaXRNZXNzYWdlUmVzcG9uc2USCwoDc2VxGAEgASgDEiwKCG1zZ190aW1lGAIgASgLMhouZ29vZ2xlLnByb3RvYnVmLlRpbWVzdGFtcBIRCglkdXBsaWNhdGUYAyABKAgSDQoFZXBvY2gYBCABKAkiUQoUUmVjYWxsTWVzc2FnZVJlcXVlc3QSEgoKY2hhbm5lbF9pZBgBIAEoCRIOCgZtc2dfaWQYAiABKAkSFQoNY2xpZW50X21zZ19pZBgDIAEoCSJ0ChVSZWNhbGxNZXNzYWdlUmVzcG9uc2USCwoDc2VxGAEgASgDEiwKCG1zZ190aW1lGAIgASgLMhouZ29vZ2xlLnByb3RvYnVmLlRpbWVzdGFtcBIRCglkdXBsaWNhdGUYAyABKAgSDQoFZXBvY2gYBCABKAkiWgoPQ2hhbm5lbFBvc2l0aW9uEhIKCmNoYW5uZWxfaWQYASABKAkSFgoJYWZ0ZXJfc2VxGAIgASgDSACIAQESDQoFZXBvY2gYAyABKAlCDAoKX2FmdGVyX3NlcSJAChBTdWJzY3JpYmVSZXF1ZXN0EiwKCGNoYW5uZWxzGAEgAygLMhoucGFybGV5LnYxLkNoYW5uZWxQb3NpdGlvbiKzAQoRU3Vic2NyaWJlUmVzcG9uc2USIwoHc2Vzc2lvbhgBIAEoCzISLnBhcmxleS52MS5TZXNzaW9uEicKBmV2ZW50cxgCIAMoCzIXLnBhcmxleS52MS5DaGFubmVsRXZlbnQSJwoJaGVhcnRiZWF0GAMgASgLMhQucGFybGV5LnYxLkhlYXJ0YmVhdBInCglyZWNvbm5lY3QYBCABKAsyFC5wYXJsZXkudjEuUmVjb25uZWN0IlQKB1Nlc3Npb24SEgoKc2Vzc2lvbl9pZBgBIAEoCRI1ChJoZWFydGJlYXRfaW50ZXJ2YWwYAiABKAsyGS5nb29nbGUucHJvdG9idWYuRHVyYXRpb24iCwoJSGVhcnRiZWF0IjYKCVJlY29ubmVjdBIpCgZ3aXRoaW4YASABKAsyGS5nb29nbGUucHJvdG9idWYuRHVyYXRpb24ixwIKDENoYW5uZWxFdmVudBISCgpjaGFubmVsX2lkGAEgASgJEgsKA3NlcRgCIAEoAxIiCgRzZW50GAMgASgLMhIucGFybGV5LnYxLk1lc3NhZ2VIABIkCgZlZGl0ZWQYBCABKAsyEi5wYXJsZXkudjEuTWVzc2FnZUgAEiYKCHJlY2FsbGVkGAUgASgLMhIucGFybGV5LnYxLk1lc3NhZ2VIABIoCgVzdGF0ZRgGIAEoCzIXLnBhcmxleS52MS5DaGFubmVsU3RhdGVIABIkCgNnYXAYByABKAsyFS5wYXJsZXkudjEuQ2hhbm5lbEdhcEgAEiYKBGxvc3QYCCABKAsyFi5wYXJsZXkudjEuQ2hhbm5lbExvc3RIABIjCgZ0eXBpbmcYCSABKAsyES5wYXJsZXkudjEuVHlwaW5nSABCBwoFZXZlbnQiNAoLQ2hhbm5lbExvc3QSJQoGcmVhc29uGAEgASgOMhUucGFybGV5LnYxLkxvc3RSZWFzb24iGQoGVHlwaW5nEg8KB3VzZXJfaWQYASABKAkiZQoMQ2hhbm5lbFN0YXRlEg0KBWVwb2NoGAEgASgJEhIKCm9sZGVzdF9zZXEYAiABKAMSEAoIaGVhZF9zZXEYAyABKAMSDQoFY291bnQYBCABKAMSEQoJcmVjb3ZlcmVkGAUgASgIImMKCkNoYW5uZWxHYXASEAoIZnJvbV9zZXEYASABKAMSDgoGdG9fc2VxGAIgASgDEg0KBWVwb2NoGAMgASgJEiQKBnJlYXNvbhgEIAEoDjIULnBhcmxleS52MS5HYXBSZWFzb24iaAoZVXBkYXRlU3Vic2NyaXB0aW9uUmVxdWVzdBISCgpzZXNzaW9uX2lkGAEgASgJEicKA2FkZBgCIAMoCzIaLnBhcmxleS52MS5DaGFubmVsUG9zaXRpb24SDgoGcmVtb3ZlGAMgAygJIhwKGlVwZGF0ZVN1YnNjcmlwdGlvblJlc3BvbnNlIpkBCgdDaGFubmVsEhIKCmNoYW5uZWxfaWQYASABKAkSFAoMbWVtYmVyc19vbmx5GAIgASgIEhIKCmNyZWF0ZWRfYnkYAyABKAkSLwoLY3JlYXRlX3RpbWUYBCABKAsyGi5nb29nbGUucHJvdG9idWYuVGltZXN0YW1wEhAKCGhlYWRfc2VxGAUgASgDEg0KBWNvdW50GAYgASgDIlIKFENyZWF0ZUNoYW5uZWxSZXF1ZXN0EhIKCmNoYW5uZWxfaWQYASABKAkSFAoMbWVtYmVyc19vbmx5GAIgASgIEhAKCHVzZXJfaWRzGAMgAygJIjwKFUNyZWF0ZUNoYW5uZWxSZXNwb25zZRIjCgdjaGFubmVsGAEgASgLMhIucGFybGV5LnYxLkNoYW5uZWwiOQoRQWRkTWVtYmVyc1JlcXVlc3QSEgoKY2hhbm5lbF9pZBgBIAEoCRIQCgh1c2VyX2lkcxgCIAMoCSIUChJBZGRNZW1iZXJzUmVzcG9uc2UiPAoUUmVtb3ZlTWVtYmVyc1JlcXVlc3QSEgoKY2hhbm5lbF9pZBgBIAEoCRIQCgh1c2VyX2lkcxgCIAMoCSIXChVSZW1vdmVNZW1iZXJzUmVzcG9uc2UiTwoSTGlzdE1lbWJlcnNSZXF1ZXN0EhIKCmNoYW5uZWxfaWQYASABKAkSEQoJcGFnZV9zaXplGAIgASgFEhIKCnBhZ2VfdG9rZW4YAyABKAkiUgoTTGlzdE1lbWJlcnNSZXNwb25zZRIiCgdtZW1iZXJzGAEgAygLMhEucGFybGV5LnYxLk1lbWJlchIXCg9uZXh0X3BhZ2VfdG9rZW4YAiABKAkiWgoGTWVtYmVyEg8KB3VzZXJfaWQYASABKAkSLQoJam9pbl90aW1lGAIgASgLMhouZ29vZ2xlLnByb3RvYnVmLlRpbWVzdGFtcBIQCghyZWFkX3NlcRgDIAEoAyI8ChNMaXN0Q2hhbm5lbHNSZXF1ZXN0EhEKCXBhZ2Vfc2l6ZRgBIAEoBRISCgpwYWdlX3Rva2VuGAIgASgJIlcKFExpc3RDaGFubmVsc1Jlc3BvbnNlEiYKCGNoYW5uZWxzGAEgAygLMhQucGFybGV5LnYxLk15Q2hhbm5lbBIXCg9uZXh0X3BhZ2VfdG9rZW4YAiABKAkifAoJTXlDaGFubmVsEiMKB2NoYW5uZWwYASABKAsyEi5wYXJsZXkudjEuQ2hhbm5lbBIQCghyZWFkX3NlcRgCIAEoAxIOCgZ1bnJlYWQYAyABKAMSKAoMbGFzdF9tZXNzYWdlGAQgASgLMhIucGFybGV5LnYxLk1lc3NhZ2UiMgoPTWFya1JlYWRSZXF1ZXN0EhIKCmNoYW5uZWxfaWQYASABKAkSCwoDc2VxGAIgASgDIjQKEE1hcmtSZWFkUmVzcG9uc2USEAoIcmVhZF9zZXEYASABKAMSDgoGdW5yZWFkGAIgASgDIicKEVNlbmRUeXBpbmdSZXF1ZXN0EhIKCmNoYW5uZWxfaWQYASABKAkiFAoSU2VuZFR5cGluZ1Jlc3BvbnNlIlIKCUl0ZW1FcnJvchIMCgRjb2RlGAEgASgJEg8KB21lc3NhZ2UYAiABKAkSJgoGZGV0YWlsGAMgASgLMhYucGFybGV5LnYxLkVycm9yRGV0YWlsKoABCg1NZXNzYWdlU3RhdHVzEh4KGk1FU1NBR0VfU1RBVFVTX1VOU1BFQ0lGSUVEEAASFwoTTUVTU0FHRV9TVEFUVVNfU0VOVBABEhkKFU1FU1NBR0VfU1RBVFVTX0VESVRFRBACEhsKF01FU1NBR0VfU1RBVFVTX1JFQ0FMTEVEEAMqRQoKTG9zdFJlYXNvbhIbChdMT1NUX1JFQVNPTl9VTlNQRUNJRklFRBAAEhoKFkxPU1RfUkVBU09OX05PVF9NRU1CRVIQASp/CglHYXBSZWFzb24SGgoWR0FQX1JFQVNPTl9VTlNQRUNJRklFRBAAEhwKGEdBUF9SRUFTT05fRVBPQ0hfQ0hBTkdFRBABEhsKF0dBUF9SRUFTT05fSElTVE9SWV9HT05FEAISGwoXR0FQX1JFQVNPTl9BSEVBRF9PRl9MT0cQAzLQCQoOTWVzc2FnZVNlcnZpY2USTAoLU2VuZE1lc3NhZ2USHS5wYXJsZXkudjEuU2VuZE1lc3NhZ2VSZXF1ZXN0Gh4ucGFybGV5LnYxLlNlbmRNZXNzYWdlUmVzcG9uc2USTwoMU2VuZE1lc3NhZ2VzEh4ucGFybGV5LnYxLlNlbmRNZXNzYWdlc1JlcXVlc3QaHy5wYXJsZXkudjEuU2VuZE1lc3NhZ2VzUmVzcG9uc2USVAoMTGlzdE1lc3NhZ2VzEh4ucGFybGV5LnYxLkxpc3RNZXNzYWdlc1JlcXVlc3QaHy5wYXJsZXkudjEuTGlzdE1lc3NhZ2VzUmVzcG9uc2UiA5ACARJOCgpHZXRNZXNzYWdlEhwucGFybGV5LnYxLkdldE1lc3NhZ2VSZXF1ZXN0Gh0ucGFybGV5LnYxLkdldE1lc3NhZ2VSZXNwb25zZSIDkAIBEkwKC0VkaXRNZXNzYWdlEh0ucGFybGV5LnYxLkVkaXRNZXNzYWdlUmVxdWVzdBoeLnBhcmxleS52MS5FZGl0TWVzc2FnZVJlc3BvbnNlElIKDVJlY2FsbE1lc3NhZ2USHy5wYXJsZXkudjEuUmVjYWxsTWVzc2FnZVJlcXVlc3QaIC5wYXJsZXkudjEuUmVjYWxsTWVzc2FnZVJlc3BvbnNlEkgKCVN1YnNjcmliZRIbLnBhcmxleS52MS5TdWJzY3JpYmVSZXF1ZXN0GhwucGFybGV5LnYxLlN1YnNjcmliZVJlc3BvbnNlMAESYQoSVXBkYXRlU3Vic2NyaXB0aW9uEiQucGFybGV5LnYxLlVwZGF0ZVN1YnNjcmlwdGlvblJlcXVlc3QaJS5wYXJsZXkudjEuVXBkYXRlU3Vic2NyaXB0aW9uUmVzcG9uc2USUgoNQ3JlYXRlQ2hhbm5lbBIfLnBhcmxleS52MS5DcmVhdGVDaGFubmVsUmVxdWVzdBogLnBhcmxleS52MS5DcmVhdGVDaGFubmVsUmVzcG9uc2USSQoKQWRkTWVtYmVycxIcLnBhcmxleS52MS5BZGRNZW1iZXJzUmVxdWVzdBodLnBhcmxleS52MS5BZGRNZW1iZXJzUmVzcG9uc2USUgoNUmVtb3ZlTWVtYmVycxIfLnBhcmxleS52MS5SZW1vdmVNZW1iZXJzUmVxdWVzdBogLnBhcmxleS52MS5SZW1vdmVNZW1iZXJzUmVzcG9uc2USUQoLTGlzdE1lbWJlcnMSHS5wYXJsZXkudjEuTGlzdE1lbWJlcnNSZXF1ZXN0Gh4ucGFybGV5LnYxLkxpc3RNZW1iZXJzUmVzcG9uc2UiA5ACARJUCgxMaXN0Q2hhbm5lbHMSHi5wYXJsZXkudjEuTGlzdENoYW5uZWxzUmVxdWVzdBofLnBhcmxleS52MS5MaXN0Q2hhbm5lbHNSZXNwb25zZSIDkAIBEkMKCE1hcmtSZWFkEhoucGFybGV5LnYxLk1hcmtSZWFkUmVxdWVzdBobLnBhcmxleS52MS5NYXJrUmVhZFJlc3BvbnNlEkkKClNlbmRUeXBpbmcSHC5wYXJsZXkudjEuU2VuZFR5cGluZ1JlcXVlc3QaHS5wYXJsZXkudjEuU2VuZFR5cGluZ1Jlc3BvbnNlQp8BChRkZXYucGFybGV5LnBhcmxleS52MUIMTWVzc2FnZVByb3RvUAFaNGdpdGh1Yi5jb20vcGFybGV5aHEvcGFybGV5L2dlbi9nby9wYXJsZXkvdjE7cGFybGV5djGiAgNQWFiqAglQYXJsZXkuVjHKAglQYXJsZXlcVjHiAhVQYXJsZXlcVjFcR1BCTWV0YWRhdGHqAgpQYXJsZXk6OlYxYgZwcm90bzM", [
	ir,
	tr,
	uo
]), mo = /*@__PURE__*/ N(K, 0), ho = /*@__PURE__*/ N(K, 1), go = /*@__PURE__*/ N(K, 6), _o = /*@__PURE__*/ En(/* @__PURE__ */ Tn(K, 0)), vo = /*@__PURE__*/ En(/* @__PURE__ */ Tn(K, 1)), yo = /*@__PURE__*/ En(/* @__PURE__ */ Tn(K, 2)), bo = /*@__PURE__*/ pa(K, 0);
// ../../sdk/ts/dist/address.js
function xo(e) {
	let t = (typeof e == "string" ? e.split(",") : e).map((e) => So(e.trim()));
	if (t.length === 0) throw TypeError("there is no address");
	if (t.some((e) => e.protocol !== t[0]?.protocol)) throw TypeError("addresses: some have http and some https");
	return [...new Set(t.map((e) => e.origin + e.pathname.replace(/\/+$/, "")))];
}
function So(e) {
	if (e === "") throw TypeError("an address is empty");
	let t;
	try {
		t = new URL(e.includes("://") ? e : `http://${e}`);
	} catch (t) {
		throw TypeError(`address ${JSON.stringify(e)}: no URL`, { cause: t });
	}
	if (t.protocol !== "http:" && t.protocol !== "https:") throw TypeError(`address ${JSON.stringify(e)}: want host:port or an http or https URL`);
	if (t.search !== "" || t.hash !== "" || t.username !== "" || t.password !== "") throw TypeError(`address of ${t.host}: a query, a fragment and a user have no meaning here`);
	return t;
}
// ../../sdk/ts/dist/backoff.js
var Co = class {
	#e;
	#t;
	#n;
	constructor(e = {}, t = Math.random) {
		this.#e = wo(e.base, 200), this.#t = wo(e.max, 1e4), this.#n = t;
	}
	bound(e) {
		return Math.min(this.#t, this.#e * 2 ** Math.min(e, 30));
	}
	draw(e, t) {
		return {
			told: Math.max(t, 0),
			own: this.upTo(this.bound(e))
		};
	}
	upTo(e) {
		return Math.max(e, 0) * this.#n();
	}
	hurried() {
		return this.upTo(this.bound(0));
	}
};
function wo(e, t) {
	return e !== void 0 && e > 0 ? e : t;
}
// ../../sdk/ts/dist/convert.js
function q(t) {
	let n = Number(t);
	if (!Number.isSafeInteger(n)) throw new J({
		code: e.OutOfRange,
		message: `${t} from the server is beyond what a number can hold`
	});
	return n;
}
function To(e) {
	return e === void 0 ? 0 : Number(e.seconds) * 1e3 + e.nanos / 1e6;
}
function Eo(e, t, n) {
	return t === 0 ? "" : e[t] ?? `${n}_${t}`;
}
function Do(e) {
	return e === void 0 ? /* @__PURE__ */ new Date(0) : nr(e);
}
function Oo(e) {
	return {
		msgId: e.msgId,
		channelId: e.channelId,
		seq: q(e.seq),
		count: q(e.count),
		fromId: e.fromId,
		type: e.msgType,
		content: e.content,
		metadata: e.metadata,
		clientMsgId: e.clientMsgId,
		time: Do(e.msgTime),
		status: ko(e.status),
		changedSeq: q(e.changedSeq)
	};
}
function ko(e) {
	switch (e) {
		case _o.RECALLED: return "recalled";
		case _o.EDITED: return "edited";
		default: return "sent";
	}
}
function Ao(e) {
	return {
		channelId: e?.channelId ?? "",
		membersOnly: e?.membersOnly ?? !1,
		createdBy: e?.createdBy ?? "",
		createTime: e?.createTime === void 0 ? void 0 : nr(e.createTime),
		headSeq: q(e?.headSeq ?? 0n),
		count: q(e?.count ?? 0n)
	};
}
function jo(e) {
	return {
		channel: Ao(e.channel),
		readSeq: q(e.readSeq),
		unread: q(e.unread),
		lastMessage: e.lastMessage === void 0 ? void 0 : Oo(e.lastMessage)
	};
}
function Mo(e) {
	return {
		userId: e.userId,
		joinTime: Do(e.joinTime),
		readSeq: q(e.readSeq)
	};
}
// ../../sdk/ts/dist/error.js
var No = 100, J = class t extends Error {
	code;
	reason;
	retryable;
	rawMessage;
	field;
	limit;
	retryAfter;
	requestId;
	positions;
	results;
	unanswered;
	constructor(t) {
		super(Fo(t), t.cause === void 0 ? void 0 : { cause: t.cause }), this.name = "ParleyError", this.code = t.code ?? e.Unknown, this.reason = t.reason ?? "", this.retryable = t.retryable ?? Io(this.reason) >= No, this.rawMessage = t.message ?? "", this.field = t.field ?? "", this.limit = t.limit ?? 0, this.retryAfter = t.retryAfter ?? 0, this.requestId = t.requestId ?? "", this.positions = t.positions ?? [], this.results = t.results, this.unanswered = t.unanswered ?? !1;
	}
	with(e) {
		return new t({
			...this,
			message: this.rawMessage,
			cause: this.cause,
			...e
		});
	}
}, Po = class extends Error {
	constructor() {
		super("the subscription was closed"), this.name = "ClosedError";
	}
};
function Fo(t) {
	let n = Oi(t.code ?? e.Unknown);
	return t.reason && (n += ` (${t.reason})`), t.message && (n += `: ${t.message}`), t.requestId ? `${n} [request ${t.requestId}]` : n;
}
function Io(e) {
	return po[e] ?? (Number(e.slice(7)) || 0);
}
function Lo(t) {
	if (t instanceof J) return t;
	if (!(t instanceof R)) {
		let n = t instanceof Error ? t.message : String(t);
		return new J({
			code: e.Unavailable,
			message: n,
			retryable: !0,
			unanswered: !0,
			cause: t
		});
	}
	if (t.cause instanceof J) return t.cause;
	let n = {
		code: t.code,
		message: t.rawMessage,
		requestId: t.metadata.get("x-request-id") ?? "",
		cause: t
	}, r = t.findDetails(fo)[0];
	return r === void 0 ? t.isWireError ? new J({
		...n,
		retryable: Ro(t.code)
	}) : new J({
		...n,
		code: t.code === e.Unknown ? e.Unavailable : t.code,
		retryable: t.code !== e.ResourceExhausted && t.code !== e.Unimplemented,
		unanswered: !0
	}) : new J({
		...n,
		...zo(r, n.requestId)
	});
}
function Ro(t) {
	return t === e.Unavailable || t === e.DeadlineExceeded || t === e.Aborted || t === e.Canceled;
}
function zo(e, t) {
	return {
		reason: Eo(po, e.reason, "REASON"),
		retryable: e.reason === po.UNSPECIFIED ? e.retryable : e.reason >= No,
		field: e.field,
		limit: Number(e.limit),
		retryAfter: To(e.retryAfter),
		requestId: e.requestId || t,
		positions: e.positions.map((e) => ({
			channelId: e.channelId,
			seq: Number(e.seq),
			epoch: e.epoch
		}))
	};
}
function Bo(t) {
	let n = Ai(t?.code ?? "") ?? e.Unknown, r = {
		code: n,
		message: t?.message,
		retryable: Ro(n)
	};
	return new J(t?.detail === void 0 ? r : {
		...r,
		...zo(t.detail, "")
	});
}
function Vo(t) {
	let n = t instanceof J && t.reason === "TOKEN_INVALID", r = `get token: ${t instanceof Error ? t.message : String(t)}`;
	return new J({
		code: e.Unauthenticated,
		reason: n ? "TOKEN_INVALID" : "",
		retryable: !n,
		message: r,
		cause: t
	});
}
function Y(t, n) {
	return new J({
		code: e.InvalidArgument,
		reason: "INVALID_FIELD",
		field: t,
		message: `${t}: ${n}`
	});
}
function Ho(t) {
	return t !== void 0 && (t.code === e.Unauthenticated || t.reason === "TOKEN_EXPIRED");
}
function Uo(t) {
	return t === void 0 || !t.retryable ? !1 : t.unanswered || t.code === e.Unavailable || t.code === e.DeadlineExceeded || t.code === e.Internal;
}
// ../../node_modules/uuid/dist/stringify.js
var X = [];
for (let e = 0; e < 256; ++e) X.push((e + 256).toString(16).slice(1));
function Wo(e, t = 0) {
	return (X[e[t + 0]] + X[e[t + 1]] + X[e[t + 2]] + X[e[t + 3]] + "-" + X[e[t + 4]] + X[e[t + 5]] + "-" + X[e[t + 6]] + X[e[t + 7]] + "-" + X[e[t + 8]] + X[e[t + 9]] + "-" + X[e[t + 10]] + X[e[t + 11]] + X[e[t + 12]] + X[e[t + 13]] + X[e[t + 14]] + X[e[t + 15]]).toLowerCase();
}
// ../../node_modules/uuid/dist/rng.js
var Go, Ko = /* @__PURE__ */ new Uint8Array(16);
function qo() {
	if (!Go) {
		if (typeof crypto > "u" || !crypto.getRandomValues) throw Error("crypto.getRandomValues() not supported. See https://github.com/uuidjs/uuid#getrandomvalues-not-supported");
		Go = crypto.getRandomValues.bind(crypto);
	}
	return Go(Ko);
}
// ../../node_modules/uuid/dist/v7.js
var Jo = {};
function Yo(e, t, n) {
	let r;
	if (e) r = Zo(e.random ?? e.rng?.() ?? qo(), e.msecs, e.seq, t, n);
	else {
		let e = Date.now(), i = qo();
		Xo(Jo, e, i), r = Zo(i, Jo.msecs, Jo.seq, t, n);
	}
	return t ?? Wo(r);
}
function Xo(e, t, n) {
	return e.msecs ??= -Infinity, e.seq ??= 0, t > e.msecs ? (e.seq = n[6] << 23 | n[7] << 16 | n[8] << 8 | n[9], e.msecs = t) : (e.seq = e.seq + 1 | 0, e.seq === 0 && e.msecs++), e;
}
function Zo(e, t, n, r, i = 0) {
	if (e.length < 16) throw Error("Random bytes length must be >= 16");
	if (!r) r = /* @__PURE__ */ new Uint8Array(16), i = 0;
	else if (i < 0 || i + 16 > r.length) throw RangeError(`UUID byte range ${i}:${i + 15} is out of buffer bounds`);
	return t ??= Date.now(), n ??= e[6] * 127 << 24 | e[7] << 16 | e[8] << 8 | e[9], r[i++] = t / 1099511627776 & 255, r[i++] = t / 4294967296 & 255, r[i++] = t / 16777216 & 255, r[i++] = t / 65536 & 255, r[i++] = t / 256 & 255, r[i++] = t & 255, r[i++] = 112 | n >>> 28 & 15, r[i++] = n >>> 20 & 255, r[i++] = 128 | n >>> 14 & 63, r[i++] = n >>> 6 & 255, r[i++] = n << 2 & 255 | e[10] & 3, r[i++] = e[11], r[i++] = e[12], r[i++] = e[13], r[i++] = e[14], r[i++] = e[15], r;
}
// ../../sdk/ts/dist/check.js
function Z(...e) {
	for (let [t, n] of e) if (n !== void 0) {
		if (typeof n != "string") throw Y(t, "is not a string");
		if (!$o(n)) throw Y(t, "is not valid UTF-8");
	}
}
var Qo = /\p{Surrogate}/u;
function $o(e) {
	return !Qo.test(e);
}
function es(e, t) {
	for (let n of t) Z([e, n]);
}
function Q(e, t) {
	if (t !== void 0 && !Number.isSafeInteger(t)) throw Y(e, "is not an integer");
}
// ../../sdk/ts/dist/send.js
function ts() {
	return Yo();
}
function ns(e) {
	let t = e.clientMsgId || ts();
	Z(["channel_id", e.channelId], ["content", e.content], ["client_msg_id", t], ["msg_type", e.type], ["from_id", e.sender]);
	for (let [t, n] of Object.entries(e.metadata ?? {})) {
		if (n === void 0) throw Y("metadata", "is not a string");
		Z(["metadata", t], ["metadata", n]);
	}
	return y(ho, {
		channelId: e.channelId,
		content: e.content,
		clientMsgId: t,
		msgType: e.type,
		fromId: e.sender,
		metadata: { ...e.metadata }
	});
}
function rs(e, t, n) {
	let r = q(n.seq);
	return e.heads.note(t, n.epoch, r), {
		channelId: t,
		msgId: n.msgId,
		seq: r,
		count: q(n.count),
		time: Do(n.msgTime),
		clientMsgId: n.clientMsgId,
		epoch: n.epoch,
		duplicate: n.duplicate
	};
}
async function is(e, t, n) {
	let r = ns(t), i = await e.retry("SendMessage", n, (e, t) => e.sendMessage(r, t));
	return rs(e, r.channelId, i);
}
function as(e, t, n) {
	let r = q(n.seq);
	return e.heads.note(t.channelId, n.epoch, r), {
		channelId: t.channelId,
		msgId: t.msgId,
		seq: r,
		count: 0,
		time: Do(n.msgTime),
		clientMsgId: t.clientMsgId,
		epoch: n.epoch,
		duplicate: n.duplicate
	};
}
async function os(e, t, n, r, i) {
	let a = {
		channelId: t,
		msgId: n,
		content: r,
		clientMsgId: i.clientMsgId || ts()
	};
	return Z(["channel_id", t], ["msg_id", n], ["content", r], ["client_msg_id", a.clientMsgId]), as(e, a, await e.retry("EditMessage", i.signal, (e, t) => e.editMessage(a, t)));
}
async function ss(e, t, n, r) {
	let i = {
		channelId: t,
		msgId: n,
		clientMsgId: r.clientMsgId || ts()
	};
	return Z(["channel_id", t], ["msg_id", n], ["client_msg_id", i.clientMsgId]), as(e, i, await e.retry("RecallMessage", r.signal, (e, t) => e.recallMessage(i, t)));
}
async function cs(e, t, n, r) {
	Z(["channel_id", t], ["msg_id", n]);
	let i = Oo((await e.retry("GetMessage", r, (e, r) => e.getMessage({
		channelId: t,
		msgId: n
	}, r))).message ?? y(mo));
	return e.heads.note(t, "", i.changedSeq), i;
}
// ../../sdk/ts/dist/batch.js
var ls = 500, us = 2031616, ds = 3;
async function fs(e, t, n) {
	let r = [], i = [];
	for (let [e, n] of t.entries()) try {
		let t = ns(n);
		i.push({
			index: e,
			request: t,
			size: ur(ho, t).length + 8
		});
	} catch (t) {
		r[e] = { error: t };
	}
	let a = new ps(e, r, i);
	try {
		await e.run(n, (e) => a.send(e));
	} catch (e) {
		throw a.giveUp(e);
	}
	return r;
}
var ps = class {
	#e;
	#t;
	#n;
	constructor(e, t, n) {
		this.#e = e, this.#t = t, this.#n = n;
	}
	async send(e) {
		let t = 0;
		for (; this.#n.length > 0;) {
			let n = this.#n.length, { node: r, error: i } = await this.#i(e, ds * this.#e.limit(t));
			if (this.#n.length < n && (t = 0), i !== void 0) {
				if (e.aborted) throw this.#e.ended(e, i);
				if (!this.#e.worthRetrying(i)) throw i;
				await this.#e.pause(e, "SendMessages", t, r, i), t++;
			}
		}
	}
	giveUp(e) {
		let t = e instanceof J ? e : ms(e);
		for (let e of this.#n) this.#t[e.index] ??= { error: t };
		let n = this.#t;
		return t instanceof J ? t.with({ results: n }) : new U(t.reason, t.cause, n);
	}
	#r() {
		let e = 0, t = this.#n.findIndex((t, n) => (e += t.size, n === ls || n > 0 && e > us));
		return t < 0 ? this.#n : this.#n.slice(0, t);
	}
	async #i(t, n) {
		let r = this.#r(), i = r.map((e) => e.request), a = await this.#e.call(t, n, (e, t) => e.sendMessages({ messages: i }, t)), o = a.error;
		if (a.error === void 0 && a.value.results.length !== r.length && (o = new J({
			code: e.Internal,
			retryable: !0,
			message: "a batch was answered with too few or too many results"
		})), a.value === void 0 || o !== void 0) {
			if (o !== void 0 && !t.aborted) for (let e of r) this.#t[e.index] = { error: o };
			return {
				node: a.node,
				error: o
			};
		}
		return o = this.#a(r, a.value.results), Uo(o) && a.node !== void 0 && this.#e.endpoints.fail(a.node), {
			node: a.node,
			error: o
		};
	}
	#a(e, t) {
		let n = /* @__PURE__ */ new Set(), r, i = 0;
		for (let [a, o] of e.entries()) {
			let e = t[a]?.result;
			if (e?.case === "sent") {
				this.#t[o.index] = { receipt: rs(this.#e, o.request.channelId, e.value) }, n.add(o);
				continue;
			}
			let s = Bo(e?.value);
			this.#t[o.index] = { error: s }, this.#e.worthRetrying(s) ? (r ??= s, i = Math.max(i, s.retryAfter)) : n.add(o);
		}
		return this.#n = this.#n.filter((e) => !n.has(e)), r === void 0 ? void 0 : r.with({ retryAfter: i });
	}
};
function ms(e) {
	return e instanceof U ? e : new U(e, void 0);
}
// ../../sdk/ts/dist/clock.js
var hs = 1e3, gs = 1e3, _s = 100, vs = Date.now() - performance.now(), ys = 0;
function $() {
	let e = performance.now(), t = Date.now() - e;
	return Math.abs(t - vs) > hs && (ys += Math.max(0, t - vs), vs = t), e + ys;
}
function bs(e) {
	let t = typeof document > "u" ? void 0 : document, n = () => {
		t?.visibilityState === "visible" && e();
	};
	return globalThis.addEventListener?.("online", e), t?.addEventListener("visibilitychange", n), () => {
		globalThis.removeEventListener?.("online", e), t?.removeEventListener("visibilitychange", n);
	};
}
var xs = class {
	#e;
	#t;
	#n = Infinity;
	#r = !1;
	#i;
	#a = Infinity;
	constructor(e) {
		this.#e = e, this.#t = bs(() => this.#s());
	}
	set(e) {
		this.#n = $() + e, this.#r = !1;
		let t = $() + Math.min(e, gs);
		(this.#i === void 0 || this.#a > t) && this.#o(t);
	}
	pause() {
		this.#n = Infinity;
	}
	close() {
		this.pause(), this.#t(), clearTimeout(this.#i), this.#i = void 0;
	}
	#o(e) {
		clearTimeout(this.#i), this.#a = e, this.#i = setTimeout(() => {
			this.#i = void 0, this.#s();
		}, Math.max(0, e - $())), Ss(this.#i);
	}
	#s() {
		let e = this.#n - $();
		e !== Infinity && (e > 0 ? this.#o($() + Math.min(e, gs)) : e < -50 && !this.#r ? (this.#r = !0, this.#n = $() + _s, this.#o(this.#n)) : (this.pause(), this.#e()));
	}
};
function Ss(e) {
	e.unref?.();
}
function Cs(e) {
	return e.told + e.own;
}
function ws(e, t, n) {
	return new Promise((r, i) => {
		if (t.aborted) {
			i(t.reason);
			return;
		}
		let a = $() + e.told, o = a + e.own, s, c = () => {
			clearTimeout(s);
			let e = o - $();
			e <= 0 ? (d(), r()) : s = setTimeout(c, Math.min(e, gs));
		}, l = bs(() => {
			o = Math.min(o, Math.max(a, $()) + n()), c();
		}), u = Xa(t, () => {
			d(), i(t.reason);
		}), d = () => {
			clearTimeout(s), l(), u();
		};
		c();
	});
}
// ../../sdk/ts/dist/caller.js
var Ts = new J({
	code: e.Canceled,
	message: "cancelled",
	retryable: !0
}), Es = class {
	endpoints;
	tokens;
	waits;
	heads;
	attemptTimeout;
	log;
	#e = /* @__PURE__ */ new Map();
	constructor(e, t, n, r, i, a) {
		this.endpoints = e, this.tokens = t, this.waits = n, this.heads = r, this.attemptTimeout = i, this.log = a;
	}
	close() {
		let e = this.#e;
		this.#e = void 0;
		for (let [t, n] of e ?? []) t.abort(n());
	}
	enter(e, t, n) {
		if (this.#e === void 0) return e.abort(n()), () => {};
		this.#e.set(e, n);
		let r = V(e, t);
		return () => {
			this.#e?.delete(e), r();
		};
	}
	async run(e, t) {
		let n = new AbortController(), r = this.enter(n, e, Os);
		try {
			return n.signal.throwIfAborted(), await t(n.signal);
		} finally {
			r();
		}
	}
	limit(e) {
		return this.attemptTimeout * 2 ** Math.min(e, 2);
	}
	async call(e, t, n) {
		for (let r = !0;; r = !1) {
			let i = await this.#t(e, t, n);
			if (!(i.token !== "" && Ho(i.error) && this.tokens.refuse(i.token)) || !r) return i;
		}
	}
	async #t(e, t, n) {
		let r = "";
		try {
			r = await this.tokens.get(e);
		} catch (t) {
			return {
				token: r,
				error: e.aborted ? Ts : Lo(t)
			};
		}
		let i = new AbortController(), a = V(i, e), o = new xs(() => i.abort(ks(t)));
		o.set(t);
		let s = this.endpoints.pick(), c = $();
		try {
			let a = {
				signal: i.signal,
				timeoutMs: t,
				headers: Ds(r)
			}, o = await H(n(s.rpc, a), i.signal);
			return this.endpoints.judge(e, s, c, t, void 0), {
				node: s,
				token: r,
				value: o
			};
		} catch (n) {
			let i = e.aborted ? Ts : Lo(n);
			return this.endpoints.judge(e, s, c, t, i), {
				node: s,
				token: r,
				error: i
			};
		} finally {
			o.close(), a();
		}
	}
	async retry(e, t, n) {
		return this.run(t, async (t) => {
			let r;
			for (let i = 0;; i++) {
				let a = await this.call(t, this.limit(i), n);
				if (a.error === void 0) return a.value;
				if (t.aborted) throw this.ended(t, r ?? a.error);
				if (!this.worthRetrying(a.error)) throw a.error;
				r = a.error, await this.pause(t, e, i, a.node, r);
			}
		});
	}
	async once(e, t) {
		return this.run(e, async (e) => {
			let n = await this.call(e, this.attemptTimeout, t);
			if (n.error === void 0) return n.value;
			throw e.aborted ? this.ended(e, n.error) : n.error;
		});
	}
	ended(e, t) {
		return Qa(e, t === Ts ? void 0 : t);
	}
	async pause(e, t, n, r, i) {
		let a = this.waits.draw(n, i.retryAfter);
		n === 0 && i.retryAfter === 0 && r !== void 0 && this.endpoints.elsewhere(r) && (a = {
			told: 0,
			own: 0
		}), this.log("warn", "retrying", {
			call: t,
			addr: r?.addr ?? "",
			wait: Cs(a),
			error: i
		});
		try {
			await ws(a, e, () => this.waits.hurried());
		} catch {
			throw this.ended(e, i);
		}
	}
	worthRetrying(e) {
		return e.retryable && (e.reason !== "TOKEN_EXPIRED" || this.tokens.refreshable);
	}
};
function Ds(e) {
	return e === "" ? {} : { Authorization: `Bearer ${e}` };
}
function Os() {
	return new DOMException("the client was closed", "AbortError");
}
function ks(t) {
	return new J({
		code: e.DeadlineExceeded,
		message: `no answer within ${t} ms`,
		retryable: !0,
		unanswered: !0
	});
}
// ../../sdk/ts/dist/pacer.js
var As = 1e4, js = 1e3, Ms = class {
	#e;
	#t = 0;
	#n = 0;
	constructor(e) {
		this.#e = e;
	}
	next(e) {
		let { waits: t, tokens: n } = this.#e, r = e.lived >= js;
		r && (this.#n = 0), (e.lived >= As || r && e.moved) && (this.#t = 0);
		let i = 0, a = e.token !== "" && Ho(e.error) && n.refuse(e.token);
		if (e.advice !== void 0) {
			if (i = t.upTo(e.advice), r) return {
				told: i,
				own: 0
			};
		} else if (a && this.#n === 0) return this.#n++, {
			told: 0,
			own: 0
		};
		else if (e.error !== void 0 && !this.#e.worthRetrying(e.error)) return;
		let o = e.error?.retryAfter ?? 0;
		if (this.#t === 0 && e.moved && o === 0) return this.#t++, {
			told: i,
			own: 0
		};
		let s = t.draw(this.#t, o);
		return this.#t++, {
			told: i + s.told,
			own: s.own
		};
	}
}, Ns = class {
	#e = [];
	#t;
	#n = Ps();
	#r = !1;
	constructor(e) {
		this.#t = e;
	}
	async put(e, t) {
		for (; this.#e.length >= this.#t;) await H(this.#n.promise, t);
		t.throwIfAborted(), this.#e.push(e), this.#i();
	}
	async take(e) {
		for (;;) {
			if (this.#e.length > 0) {
				let e = this.#e.shift();
				return this.#i(), e;
			}
			if (this.#r) return;
			await H(this.#n.promise, e);
		}
	}
	close() {
		this.#r = !0, this.#i();
	}
	#i() {
		this.#n.resolve(), this.#n = Ps();
	}
};
function Ps() {
	let e = () => {};
	return {
		promise: new Promise((t) => {
			e = t;
		}),
		resolve: e
	};
}
var Fs = class {
	#e = Promise.resolve();
	async take(e) {
		let t = this.#e, n = Ps();
		this.#e = n.promise;
		try {
			await H(t, e), e.throwIfAborted();
		} catch (e) {
			throw t.then(n.resolve), e;
		}
		return n.resolve;
	}
}, Is = 3, Ls = class {
	id;
	arrived;
	taken;
	begun = !1;
	onStream = !1;
	tentative = !1;
	lost = !1;
	replaced;
	#e = 0;
	constructor(e) {
		this.id = e.channelId, e.position !== void 0 && (this.arrived = {
			seq: e.position.seq,
			epoch: e.position.epoch
		}, this.taken = { ...e.position });
	}
	get wanted() {
		return !this.tentative && !this.lost;
	}
	request() {
		return this.arrived === void 0 ? { channelId: this.id } : {
			channelId: this.id,
			afterSeq: BigInt(this.arrived.seq),
			epoch: this.arrived.epoch
		};
	}
	accept(e) {
		let { event: t } = e;
		if (this.lost) return "drop";
		if (t.case === "state") return this.#t(q(e.seq), t.value);
		if (t.case === "lost") return this.lose(t.value.reason);
		if (!this.begun || this.arrived === void 0) return "drop";
		switch (t.case) {
			case "gap": return this.#e = 0, this.arrived = {
				seq: q(e.seq),
				epoch: t.value.epoch || this.arrived.epoch
			}, this.#r({
				fromSeq: q(t.value.fromSeq),
				toSeq: q(t.value.toSeq),
				epoch: t.value.epoch,
				reason: Eo(yo, t.value.reason, "REASON")
			});
			case "typing": return {
				kind: "typing",
				channelId: this.id,
				seq: 0,
				epoch: this.arrived.epoch,
				userId: t.value.userId
			};
			case "sent":
			case "edited":
			case "recalled": return this.#n(this.arrived, q(e.seq), t.case, t.value);
			default: return q(e.seq) === this.arrived.seq + 1 && this.arrived.seq++, "drop";
		}
	}
	lose(e) {
		this.lost = !0, this.onStream = !1;
		let { seq: t, epoch: n } = this.arrived ?? {
			seq: 0,
			epoch: ""
		}, r = Eo(vo, e, "REASON");
		return {
			kind: "lost",
			channelId: this.id,
			seq: t,
			epoch: n,
			reason: r
		};
	}
	take(e) {
		e.kind !== "typing" && e.kind !== "lost" && (e.kind === "channel_state" && this.taken !== void 0 ? this.taken.epoch ||= e.epoch : this.taken = {
			channelId: this.id,
			seq: e.seq,
			epoch: e.epoch
		});
	}
	#t(e, t) {
		return this.begun = !0, this.arrived === void 0 ? this.arrived = {
			seq: e,
			epoch: t.epoch
		} : (this.arrived.epoch === "" || t.recovered) && (this.arrived.epoch = t.epoch), {
			kind: "channel_state",
			channelId: this.id,
			seq: e,
			epoch: t.epoch,
			state: {
				epoch: t.epoch,
				oldestSeq: q(t.oldestSeq),
				headSeq: q(t.headSeq),
				count: q(t.count),
				recovered: t.recovered
			}
		};
	}
	#n(e, t, n, r) {
		if (t <= e.seq) return "drop";
		if (t === e.seq + 1) {
			let i = {
				kind: n,
				channelId: this.id,
				seq: t,
				epoch: e.epoch,
				message: Oo(r)
			};
			return e.seq = t, this.#e = 0, i;
		}
		if (this.#e++, this.#e < Is) return "broken";
		let i = {
			fromSeq: e.seq,
			toSeq: t - 1,
			epoch: e.epoch,
			reason: ""
		};
		return e.seq = i.toSeq, this.#e = 0, this.#r(i);
	}
	#r(e) {
		let { seq: t, epoch: n } = this.arrived;
		return {
			kind: "gap",
			channelId: this.id,
			seq: t,
			epoch: n,
			gap: e
		};
	}
}, Rs = class {
	#e = /* @__PURE__ */ new Map();
	#t;
	constructor(e) {
		this.#t = e;
	}
	get(e) {
		return this.#e.get(e);
	}
	wanted() {
		return [...this.#e.values()].filter((e) => e.wanted);
	}
	late() {
		return this.wanted().filter((e) => !e.onStream);
	}
	begin() {
		for (let e of this.#e.values()) e.begun = !1, e.onStream = e.wanted;
		return this.wanted().map((e) => e.request());
	}
	insert(e) {
		let t = this.#e.get(e.channelId);
		if (t !== void 0 && !t.lost) return;
		let n = new Ls(e);
		return n.replaced = t, this.put(n), n;
	}
	put(e) {
		this.delete(e.id), this.#e.set(e.id, e);
	}
	delete(e) {
		this.#e.delete(e);
	}
	accept(e) {
		let t = [];
		for (let n = 0; n < e.length; n++) {
			let r = e[n], i = this.#e.get(r.channelId);
			if (i === void 0) continue;
			let a = i.accept(r);
			if (a === "broken") return {
				frame: t,
				missing: {
					channel: i.id,
					after: i.arrived?.seq ?? 0
				}
			};
			a !== "drop" && (t.push({
				event: a,
				channel: i
			}), this.#n(a), a.kind === "gap" && r.event.case !== "gap" && n--);
		}
		return { frame: t };
	}
	lose(e) {
		let t = [];
		for (let { channelId: n } of e) {
			let e = this.#e.get(n);
			e?.wanted && t.push({
				event: e.lose(vo.NOT_MEMBER),
				channel: e
			});
		}
		return t;
	}
	take({ event: e, channel: t }) {
		let n = this.#e.get(t.id), r = n?.tentative && n.replaced === t;
		return n !== t && !r ? !1 : (t.take(e), e.kind === "lost" && (r ? n.replaced = void 0 : this.delete(t.id)), !0);
	}
	#n(e) {
		if (e.kind === "lost" || e.kind === "typing") return;
		if (e.kind === "gap" && e.gap.reason === "AHEAD_OF_LOG") {
			this.#t.reset({
				channelId: e.channelId,
				seq: e.seq,
				epoch: e.epoch
			});
			return;
		}
		let t = e.kind === "channel_state" ? e.state.headSeq : 0;
		this.#t.note(e.channelId, e.epoch, Math.max(e.seq, t));
	}
};
// ../../sdk/ts/dist/start.js
function zs(e) {
	return { channelId: e };
}
function Bs(e) {
	return {
		channelId: e,
		position: {
			channelId: e,
			seq: 0,
			epoch: ""
		}
	};
}
function Vs(e) {
	let { channelId: t, seq: n, epoch: r = "" } = e;
	return {
		channelId: t,
		position: {
			channelId: t,
			seq: n,
			epoch: r
		}
	};
}
function Hs(e) {
	for (let { channelId: t, position: n } of e) Z(["channels", t], ["channels", n?.epoch]), Q("channels", n?.seq);
}
// ../../sdk/ts/dist/stream.js
var Us = 15e3;
function Ws(e, t, n = !1) {
	return new J({
		code: e,
		message: t,
		retryable: !0,
		unanswered: n
	});
}
function Gs() {
	return Ws(e.Aborted, "a change of channels may not have arrived");
}
var Ks = class {
	session = "";
	removed = [];
	#e;
	#t = new AbortController();
	#n = {
		token: "",
		lived: 0,
		moved: !1
	};
	#r;
	#i;
	constructor(e) {
		this.#e = e, this.#i = e.caller.attemptTimeout;
	}
	get signal() {
		return this.#t.signal;
	}
	leave(e) {
		this.#t.abort(e);
	}
	async follow() {
		let t = V(this.#t, this.#e.signal), n = new xs(() => this.leave(this.#r === void 0 ? Ws(e.Unavailable, "no first frame in time") : Ws(e.Unavailable, "no frame for 2.5 heartbeat intervals")));
		try {
			await this.#a(n);
		} catch (e) {
			this.#n.error = Lo(this.signal.aborted ? this.signal.reason : e);
		} finally {
			n.close(), t(), this.#t.abort();
		}
		return this.#r !== void 0 && (this.#n.lived = $() - this.#r), this.#n;
	}
	async #a(t) {
		let { caller: n } = this.#e;
		this.#n.token = await n.tokens.get(this.signal), t.set(this.#i);
		let r = n.endpoints.pick();
		this.#n.node = r;
		let i = $(), a = { channels: this.#e.begin(this) }, o = {
			signal: this.signal,
			headers: Ds(this.#n.token)
		}, s = r.rpc.subscribe(a, o)[Symbol.asyncIterator]();
		for (;;) {
			let { done: n, value: a } = await H(s.next(), this.signal);
			if (n) {
				this.#n.error = Ws(e.Unavailable, "the stream ended without a reason");
				return;
			}
			if (t.pause(), this.#r === void 0 && this.#o(a, r, i), !await this.#s(a)) return;
			t.set(this.#i);
		}
	}
	#o(e, t, n) {
		this.#r = $(), this.#i = 2.5 * (To(e.session?.heartbeatInterval) || Us), this.session = e.session?.sessionId ?? "", this.#e.caller.endpoints.work(t, n), this.#e.live(this, t);
	}
	async #s(t) {
		return await this.#e.deliver(t.events) ? t.reconnect === void 0 || (this.#n.advice = To(t.reconnect.within), !1) : (this.#n.error = Ws(e.DataLoss, "the stream skipped entries", !0), !1);
	}
};
// ../../sdk/ts/dist/update.js
async function qs(e, t, n) {
	Hs(t), await $s(e, n, async (n) => {
		let r = t.map((t) => e.roster.insert(t)).filter((e) => e !== void 0), i = e.stream, a = Zs(i, r, []);
		for (let e of r) e.tentative = a !== void 0;
		let o = await Qs(e, i, a, n);
		if (Js(e, i, r, o !== void 0), o !== void 0) throw o;
	});
}
function Js(e, t, n, r) {
	for (let i of n) {
		if (r) {
			e.roster.delete(i.id), i.replaced !== void 0 && e.roster.put(i.replaced);
			continue;
		}
		i.tentative = !1, i.replaced = void 0;
		let n = e.stream;
		!i.onStream && !i.lost && n !== void 0 && n !== t && n.session !== "" && n.leave(Gs());
	}
}
async function Ys(e, t, n) {
	es("channels", t), await $s(e, n, async (n) => {
		let r = [];
		for (let n of t) e.roster.get(n)?.onStream && r.push(n), e.roster.delete(n);
		let i = e.stream, a = Zs(i, [], r);
		a === void 0 && i?.removed.push(...r);
		let o = await Qs(e, i, a, n);
		if (o !== void 0) throw o;
	});
}
async function Xs(e, t) {
	try {
		await $s(e, t.signal, async (n) => {
			let r = t.removed.filter((t) => e.roster.get(t) === void 0), i = Zs(t, e.roster.late(), r);
			t.removed = [];
			let a = await Qs(e, t, i, n);
			a !== void 0 && t.leave(a);
		});
	} catch {}
}
function Zs(e, t, n) {
	if (e !== void 0 && e.session !== "" && t.length + n.length !== 0) {
		for (let e of t) e.onStream = !0, e.begun = !1;
		return {
			sessionId: e.session,
			add: t.map((e) => e.request()),
			remove: [...n]
		};
	}
}
async function Qs(e, t, n, r) {
	if (n === void 0) return;
	let { caller: i } = e, { error: a } = await i.call(r, i.attemptTimeout, (e, t) => e.updateSubscription(n, t));
	if (a === void 0 || a.retryable || a.reason === "SESSION_NOT_FOUND") a !== void 0 && t?.leave(Gs());
	else return a;
}
async function $s(e, t, n) {
	let r = new AbortController(), i = [V(r, t), V(r, e.signal)];
	try {
		let t = await e.turn.take(r.signal);
		try {
			await n(r.signal);
		} finally {
			t();
		}
	} finally {
		for (let e of i) e();
	}
}
// ../../sdk/ts/dist/core.js
var ec = 4, tc = class {
	caller;
	roster;
	queue = new Ns(ec);
	turn = new Fs();
	done;
	state = "connecting";
	stream;
	error;
	#e;
	#t = new AbortController();
	#n = /* @__PURE__ */ new Set();
	#r = !1;
	constructor(e, t, n) {
		this.caller = e, this.roster = new Rs(e.heads), this.#e = n.onState;
		let r = e.enter(this.#t, n.signal, () => new Po());
		this.done = this.#i(t).finally(r);
	}
	get signal() {
		return this.#t.signal;
	}
	get closed() {
		return this.signal.reason instanceof Po;
	}
	close() {
		this.#t.abort(new Po());
	}
	begin(e) {
		return this.stream = e, this.roster.begin();
	}
	live(e, t) {
		this.#r = !0;
		let n = e.removed.length > 0 || this.roster.late().length > 0;
		if (this.#c({
			state: "live",
			addr: t.addr
		}), n) {
			let t = Xs(this, e).finally(() => this.#n.delete(t));
			this.#n.add(t);
		}
	}
	async deliver(e) {
		let { frame: t, missing: n } = this.roster.accept(e);
		return n !== void 0 && this.caller.log("warn", "stream skipped entries", n), t.length > 0 && await this.queue.put(t, this.signal), n === void 0;
	}
	async #i(e) {
		await Promise.resolve();
		try {
			Hs(e);
			for (let t of e) this.roster.insert(t);
			this.error = await this.#a();
		} catch (e) {
			this.error = e;
		}
		this.stream = void 0, this.signal.aborted && (this.error = this.signal.reason), this.#t.abort(this.error), await Promise.all(this.#n);
		let t = this.error instanceof Error ? this.error : Error(String(this.error));
		this.#c({
			state: "ended",
			error: t
		}), this.queue.close();
	}
	async #a() {
		let e = new Ms(this.caller);
		for (;;) {
			this.#c({ state: "connecting" });
			let t = await new Ks(this).follow();
			if (this.signal.throwIfAborted(), await this.#s(t)) continue;
			this.#o(t);
			let n = e.next(t);
			if (n === void 0) return t.error;
			let r = t.node?.addr;
			this.caller.log("warn", "subscription waits for its next stream", {
				addr: r,
				wait: Cs(n),
				error: t.error
			}), this.#c({
				state: "waiting",
				error: t.error,
				wait: Cs(n),
				addr: r
			}), await ws(n, this.signal, () => this.caller.waits.hurried());
		}
	}
	#o(e) {
		e.node !== void 0 && ((e.advice !== void 0 || Uo(e.error)) && this.caller.endpoints.fail(e.node), e.moved = this.caller.endpoints.elsewhere(e.node));
	}
	async #s(t) {
		let { error: n } = t;
		if (n?.reason !== "NOT_MEMBER" || n.positions.length === 0 || !this.#r) return !1;
		let r = this.roster.lose(n.positions);
		return r.length === 0 ? (t.error = new J({
			code: e.Aborted,
			retryable: !0,
			message: "refused for channels that are not followed",
			cause: n
		}), !1) : (this.caller.log("warn", "subscription lost channels", {
			channels: r.length,
			addr: t.node?.addr
		}), await this.queue.put(r, this.signal), !0);
	}
	#c(e) {
		this.state = e.state;
		try {
			this.#e?.(e);
		} catch (e) {
			queueMicrotask(() => {
				throw e;
			});
		}
	}
}, nc = 5e3, rc = 3e4, ic = 1e3, ac = class {
	#e;
	#t;
	#n = 0;
	constructor(e, t, n, r = $) {
		this.#t = r, this.#e = e.map((e) => ({
			addr: e,
			rpc: t(e),
			failures: 0,
			failedAt: -Infinity,
			avoided: -Infinity
		}));
		for (let e = this.#e.length - 1; e > 0; e--) {
			let t = Math.floor(n() * (e + 1)), [r, i] = [this.#r(e), this.#r(t)];
			this.#e[e] = i, this.#e[t] = r;
		}
	}
	pick() {
		let e = this.#t(), t = this.#n;
		for (let n = 0; n < this.#e.length; n++) {
			let r = (this.#n + n) % this.#e.length, i = this.#r(r);
			if (e >= i.avoided) return this.#n = r, i;
			i.failedAt < this.#r(t).failedAt && (t = r);
		}
		return this.#n = t, this.#r(t);
	}
	elsewhere(e) {
		let t = this.pick();
		return t !== e && this.#t() >= t.avoided;
	}
	fail(e) {
		let t = this.#t();
		e.failedAt = t, t < e.avoided || (e.avoided = t + Math.min(nc * 2 ** Math.min(e.failures, 8), rc), e.failures++);
	}
	work(e, t) {
		t > e.failedAt && (e.failures = 0, e.avoided = -Infinity);
	}
	judge(t, n, r, i, a) {
		let o = t.aborted && oc(t.reason);
		(!t.aborted || o) && (o || a?.code === e.DeadlineExceeded ? this.#t() - r >= Math.min(ic, i) && this.fail(n) : Uo(a) ? this.fail(n) : this.work(n, r));
	}
	#r(e) {
		return this.#e[e];
	}
};
function oc(e) {
	return e instanceof Error && e.name === "TimeoutError";
}
// ../../sdk/ts/dist/fetch.js
function sc(e) {
	return async (t, n) => {
		let r = await e(t, n), i = n?.signal;
		return !i || r.body === null ? r : new Response(r.body.pipeThrough(new TransformStream(), { signal: i }), r);
	};
}
// ../../sdk/ts/dist/history.js
var cc = 1e3;
async function* lc(e, t, n) {
	let { afterSeq: r, beforeSeq: i, limit: a = 0, signal: o } = n;
	Z(["channel_id", t]), Q("after_seq", r), Q("before_seq", i), Q("page_size", n.pageSize);
	let s = y(go, {
		channelId: t,
		afterSeq: r === void 0 ? void 0 : BigInt(r),
		beforeSeq: i === void 0 ? void 0 : BigInt(i),
		pageSize: Math.min(Math.max(n.pageSize || a, 0), cc),
		minSeq: BigInt(e.heads.get(t).seq)
	}), c = 0;
	do {
		let t = await uc(e, s, o);
		for (let e of t.messages) if (yield Oo(e), c++, c === a) return;
		s.pageToken = t.nextPageToken;
	} while (s.pageToken !== "");
}
async function uc(e, t, n) {
	try {
		return await dc(e, t, n);
	} catch (r) {
		if (!(r instanceof J && r.reason === "POSITION_OUT_OF_RANGE") || t.minSeq === 0n || t.pageToken !== "") throw r;
		let i = e.heads.get(t.channelId), a = t.minSeq;
		t.minSeq = 0n;
		let o = await dc(e, t, n).catch(() => void 0);
		if (o !== void 0 && o.epoch !== i.epoch) return o;
		throw t.minSeq = a, r;
	}
}
async function dc(e, t, n) {
	let r = await e.retry("ListMessages", n, (e, n) => e.listMessages(t, n));
	return e.heads.note(t.channelId, r.epoch, q(r.headSeq)), r;
}
// ../../sdk/ts/dist/member.js
var fc = 500;
async function pc(e, t, n) {
	let r = [...n.members ?? []];
	Z(["channel_id", t]), es("user_ids", r);
	let i = {
		channelId: t,
		membersOnly: n.membersOnly ?? !1,
		userIds: r
	}, a = 0;
	try {
		return Ao((await e.retry("CreateChannel", n.signal, (e, t) => (a++, e.createChannel(i, t)))).channel);
	} catch (e) {
		throw e instanceof J && e.reason === "CHANNEL_EXISTS" && a > 1 ? e.with({ message: `${e.rawMessage} (an earlier attempt of this call may have made it)` }) : e;
	}
}
async function mc(e, t, n, r, i, a) {
	Z(["channel_id", n]), es("user_ids", r);
	let o = 0;
	do {
		let s = {
			channelId: n,
			userIds: r.slice(o, o + fc)
		};
		await e.retry(t, i, (e, t) => a(e, s, t)), o += fc;
	} while (o < r.length);
}
function hc(e, t, n, r) {
	return mc(e, "AddMembers", t, n, r, (e, t, n) => e.addMembers(t, n));
}
function gc(e, t, n, r) {
	return mc(e, "RemoveMembers", t, n, r, (e, t, n) => e.removeMembers(t, n));
}
async function* _c(e, t, n) {
	let { pageSize: r, signal: i } = n;
	Z(["channel_id", t]), Q("page_size", r);
	let a = "";
	do {
		let n = {
			channelId: t,
			pageSize: r,
			pageToken: a
		}, o = await e.retry("ListMembers", i, (e, t) => e.listMembers(n, t));
		for (let e of o.members) yield Mo(e);
		a = o.nextPageToken;
	} while (a !== "");
}
// ../../sdk/ts/dist/mychannel.js
async function* vc(e, t) {
	let { pageSize: n, signal: r } = t;
	Q("page_size", n);
	let i = "";
	do {
		let t = {
			pageSize: n,
			pageToken: i
		}, a = await e.retry("ListChannels", r, (e, n) => e.listChannels(t, n)), o = a.channels.map(jo);
		for (let { channel: t } of o) e.heads.note(t.channelId, "", t.headSeq);
		yield* o, i = a.nextPageToken;
	} while (i !== "");
}
async function yc(e, t, n, r) {
	if (Z(["channel_id", t]), !Number.isSafeInteger(n)) throw Y("seq", "is not an integer");
	let i = {
		channelId: t,
		seq: BigInt(n)
	}, a = await e.retry("MarkRead", r, (e, t) => e.markRead(i, t));
	return {
		seq: q(a.readSeq),
		unread: q(a.unread)
	};
}
async function bc(e, t, n) {
	Z(["channel_id", t]), await e.once(n, (e, n) => e.sendTyping({ channelId: t }, n));
}
// ../../sdk/ts/dist/position.js
var xc = class {
	#e = /* @__PURE__ */ new Map();
	note(e, t, n) {
		let r = this.#e.get(e), i = t || r?.epoch || "";
		(r === void 0 || r.epoch !== i || r.seq < n) && this.#e.set(e, {
			seq: n,
			epoch: i
		});
	}
	reset(e) {
		this.#e.set(e.channelId, {
			seq: e.seq,
			epoch: e.epoch
		});
	}
	get(e) {
		return this.#e.get(e) ?? {
			seq: 0,
			epoch: ""
		};
	}
}, Sc = class {
	#e;
	#t = [];
	#n = 0;
	constructor(e) {
		this.#e = e;
	}
	async next(e) {
		for (;;) {
			if (e?.throwIfAborted(), this.#e.closed) throw this.#e.signal.reason;
			for (; this.#n < this.#t.length;) {
				let e = this.#t[this.#n++];
				if (this.#e.roster.take(e)) return e.event;
			}
			let t = await this.#e.queue.take(e);
			if (t === void 0) throw this.#e.error;
			this.#t = t, this.#n = 0;
		}
	}
	async *[Symbol.asyncIterator]() {
		for (;;) {
			let e;
			try {
				e = await this.next();
			} catch (e) {
				if (e instanceof Po) return;
				throw e;
			}
			yield e;
		}
	}
	async add(e, t) {
		await qs(this.#e, Cc(e) ? e : [e], t);
	}
	async remove(e, t) {
		await Ys(this.#e, typeof e == "string" ? [e] : e, t);
	}
	position(e) {
		let t = this.#e.roster.get(e)?.taken;
		return t === void 0 ? void 0 : { ...t };
	}
	get state() {
		return this.#e.state;
	}
	get error() {
		return this.#e.error;
	}
	get done() {
		return this.#e.done;
	}
	close() {
		this.#e.close();
	}
};
function Cc(e) {
	return Array.isArray(e);
}
// ../../sdk/ts/dist/token.js
var wc = 1e4, Tc = class {
	#e;
	#t;
	#n = "";
	#r;
	constructor(e, t) {
		this.#e = e, this.#t = t;
	}
	get refreshable() {
		return this.#e !== void 0;
	}
	async get(e) {
		return this.#e === void 0 ? Ec(this.#t) : this.#n === "" ? (this.#r ??= this.#i(this.#e).finally(() => {
			this.#r = void 0;
		}), H(this.#r, e)) : this.#n;
	}
	refuse(e) {
		return this.#e !== void 0 && (this.#n === e && (this.#n = ""), !0);
	}
	async #i(e) {
		let t = new AbortController(), n = new xs(() => t.abort(/* @__PURE__ */ Error(`the source gave none within ${wc} ms`)));
		n.set(wc);
		try {
			let n = Ec(await H((async () => e(t.signal))(), t.signal));
			if (n === "") throw Error("the source gave an empty token");
			return this.#n = n, n;
		} catch (e) {
			throw Vo(e);
		} finally {
			n.close();
		}
	}
};
function Ec(e) {
	if (typeof e != "string" || !/^[\x20-\x7e]*$/.test(e)) throw new J({
		reason: "TOKEN_INVALID",
		message: "the token is no printable ASCII text"
	});
	return e;
}
// ../../sdk/ts/dist/client.js
var Dc = 5e3, Oc = class {
	#e;
	constructor(e, t = {}) {
		let n = t.random ?? Math.random, r = (e) => qi(bo, kc(e, t));
		this.#e = new Es(new ac(xo(e), r, n), new Tc(t.tokenSource, t.token ?? ""), new Co(t.backoff, n), new xc(), t.attemptTimeout !== void 0 && t.attemptTimeout > 0 ? t.attemptTimeout : Dc, t.log ?? (() => {}));
	}
	async send(e, t, n = {}) {
		let { signal: r, ...i } = n;
		return is(this.#e, {
			...i,
			channelId: e,
			content: t
		}, r);
	}
	async sendBatch(e, t = {}) {
		return fs(this.#e, e, t.signal);
	}
	async edit(e, t, n, r = {}) {
		return os(this.#e, e, t, n, r);
	}
	async recall(e, t, n = {}) {
		return ss(this.#e, e, t, n);
	}
	async get(e, t, n = {}) {
		return cs(this.#e, e, t, n.signal);
	}
	history(e, t = {}) {
		return lc(this.#e, e, t);
	}
	channels(e = {}) {
		return vc(this.#e, e);
	}
	members(e, t = {}) {
		return _c(this.#e, e, t);
	}
	async createChannel(e, t = {}) {
		return pc(this.#e, e, t);
	}
	async addMembers(e, t, n = {}) {
		return hc(this.#e, e, t, n.signal);
	}
	async removeMembers(e, t, n = {}) {
		return gc(this.#e, e, t, n.signal);
	}
	async markRead(e, t, n = {}) {
		return yc(this.#e, e, t, n.signal);
	}
	async typing(e, t = {}) {
		return bc(this.#e, e, t.signal);
	}
	subscribe(e, t = {}) {
		let n = Array.isArray(e) ? e : [e];
		return new Sc(new tc(this.#e, n, t));
	}
	close() {
		this.#e.close();
	}
};
function kc(e, t) {
	return t.transport === void 0 ? (t.protocol === "grpc-web" ? lo : no)({
		baseUrl: e,
		useBinaryFormat: !0,
		fetch: sc(t.fetch ?? globalThis.fetch),
		interceptors: t.interceptors
	}) : t.transport(e);
}
export { Oc as Client, Po as ClosedError, e as Code, U as InterruptedError, J as ParleyError, Sc as Subscription, Vs as after, Bs as fromStart, zs as live };
