"""Crafted archives for the tests of imports: test_archives.py KIND OUT VICTIM.

VICTIM is an absolute path outside of everything; whoever unpacks KIND carelessly changes what is in
it.
"""
import gzip
import hashlib
import io
import json
import random
import sys
import tarfile

kind, out, victim = sys.argv[1:4]
up = '../' * 16 + victim.lstrip('/')
tar = tarfile.open(out, 'w', format=tarfile.PAX_FORMAT)


def put(name, data=b'x', **more):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in more.items():
        setattr(info, key, value)
    tar.addfile(info, io.BytesIO(data))


def special(name, typ, link='', **more):
    info = tarfile.TarInfo(name)
    info.type = typ
    info.linkname = link
    for key, value in more.items():
        setattr(info, key, value)
    tar.addfile(info)


def folder(name, mode=0o755):
    special(name, tarfile.DIRTYPE, mode=mode)


def plain(order=None):
    members = [
        lambda: folder('bin'), lambda: folder('usr'), lambda: folder('usr/share'),
        lambda: put('bin/tool', b'#!/bin/sh\n', mode=0o755), lambda: put('usr/share/text', b'text\n'),
        lambda: put('usr/share/z', b'z' * 100), lambda: put('usr/share/a', b'a' * 100),
        lambda: special('link', tarfile.SYMTYPE, 'usr/share/text'),
    ]
    dirs, rest = members[:3], members[3:]
    if order is not None:
        random.Random(order).shuffle(rest)
    for make in dirs + rest:
        make()


if kind == 'plain':
    plain()
elif kind == 'shuffled':
    plain(7)
elif kind == 'absolute':
    put(victim + '/made')
elif kind == 'dotdot':
    put(up + '/made')
elif kind == 'symlink-absolute':
    special('way', tarfile.SYMTYPE, victim)
    put('way/made')
elif kind == 'symlink-relative':
    special('way', tarfile.SYMTYPE, up)
    put('way/made')
elif kind == 'symlink-chain':
    folder('a')
    special('a/up', tarfile.SYMTYPE, '../../../../../../../../../..')
    special('way', tarfile.SYMTYPE, 'a/up' + victim)
    put('way/made')
elif kind == 'symlink-file':  # writing to a file through a link
    special('way', tarfile.SYMTYPE, victim + '/file')
    put('way', b'changed')
    special('way2', tarfile.SYMTYPE, victim + '/file')
    special('way2', tarfile.LNKTYPE, 'way')
elif kind == 'hardlink':
    put('a')
    special('way', tarfile.LNKTYPE, victim + '/file')
    put('way', b'changed')
elif kind == 'hardlink-symlink':
    special('out', tarfile.SYMTYPE, victim)
    special('way', tarfile.LNKTYPE, 'out/file')
    put('way', b'changed')
elif kind == 'whiteout-up':
    folder('d')
    put('d/keep')
    put('d/.wh...', b'')
elif kind == 'whiteout-top':
    put('a')
    put('.wh...', b'')
elif kind == 'whiteout-self':
    put('a')
    put('.wh..', b'')
elif kind == 'whiteout-symlink':
    special('way', tarfile.SYMTYPE, victim)
    put('way/.wh.file', b'')
elif kind == 'special':
    folder('d')
    special('d/block', tarfile.BLKTYPE, devmajor=8, devminor=0, mode=0o666)
    special('d/null', tarfile.CHRTYPE, devmajor=1, devminor=3, mode=0o666)
    special('d/fifo', tarfile.FIFOTYPE)
    put('d/setuid', b'x', mode=0o4755)
    put('d/setgid', b'x', mode=0o2755)
    put('d/closed', b'x', mode=0)
    folder('d/sticky', 0o1777)
    folder('d/locked', 0)
    put('d/locked/in', b'x')
    put('d/caps', b'x', mode=0o755,
        pax_headers={'SCHILY.xattr.security.capability': '\x01\x00\x00\x02\x00\x20\x00\x00' + '\x00' * 12,
                     'SCHILY.xattr.user.overlay.redirect': '/etc'})
    folder('dev')
    put('dev/own')
    put('proc/own')
    put('tmp/own')
elif kind == 'duplicates':
    put('twice', b'one')
    put('twice', b'second')
    folder('now-a-file')
    put('now-a-file', b'file')
elif kind == 'bytes':  # 1000 bytes in 3 files and a directory; one file has two names
    folder('d')
    put('d/a', b'a' * 600)
    put('d/b', b'b' * 399)
    put('d/c', b'c')
    special('d/e', tarfile.LNKTYPE, 'd/a')
elif kind == 'deep':
    for n in range(1, 130):
        folder('/'.join(['d'] * n))
elif kind == 'deep-enough':
    for n in range(1, 128):
        folder('/'.join(['d'] * n))
elif kind == 'huge-header':  # says that it is a terabyte long, and is not
    info = tarfile.TarInfo('huge')
    info.size = 1 << 40
    tar.fileobj.write(info.tobuf(tarfile.GNU_FORMAT))
    tar.fileobj.write(b'x' * 1024)
    tar.fileobj.close()
    sys.exit(0)
elif kind == 'sparse':  # a terabyte of nothing
    info = tarfile.TarInfo('GNUSparseFile.0/huge')
    data = b'1\n' + str((1 << 40) - 512).encode() + b'\n512\n'
    data = data.ljust(512, b'\0') + b'x' * 512
    info.size = len(data)
    info.pax_headers = {'GNU.sparse.major': '1', 'GNU.sparse.minor': '0', 'GNU.sparse.name': 'huge',
                        'GNU.sparse.realsize': str(1 << 40)}
    tar.addfile(info, io.BytesIO(data))
elif kind == 'bomb':
    tar.close()
    with gzip.open(out, 'wb') as f:
        for _ in range(200):
            f.write(b'\0' * (1 << 20))
    sys.exit(0)
elif kind == 'empty':
    pass
elif kind == 'garbage':
    tar.close()
    with open(out, 'wb') as f:
        f.write(b'this is no archive\n' * 100)
    sys.exit(0)
elif kind == 'urls':  # an OCI archive whose configuration is to be had at a port of this host
    layer = b'\0' * 10240
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps({'architecture': 'amd64', 'os': 'linux', 'config': {},
                         'rootfs': {'type': 'layers', 'diff_ids': ['sha256:' + digest]}}).encode()
    manifest = json.dumps({
        'schemaVersion': 2, 'mediaType': 'application/vnd.oci.image.manifest.v1+json',
        'config': {'mediaType': 'application/vnd.oci.image.config.v1+json', 'size': len(config),
                   'digest': 'sha256:' + hashlib.sha256(config).hexdigest(),
                   'urls': ['http://127.0.0.1:' + victim + '/secret']},
        'layers': [{'mediaType': 'application/vnd.oci.image.layer.v1.tar', 'size': len(layer),
                    'digest': 'sha256:' + digest}]}).encode()
    index = json.dumps({'schemaVersion': 2, 'manifests': [{
        'mediaType': 'application/vnd.oci.image.manifest.v1+json', 'size': len(manifest),
        'digest': 'sha256:' + hashlib.sha256(manifest).hexdigest()}]}).encode()
    put('oci-layout', b'{"imageLayoutVersion":"1.0.0"}')
    put('index.json', index)
    folder('blobs')
    folder('blobs/sha256')
    for blob in layer, config, manifest:
        put('blobs/sha256/' + hashlib.sha256(blob).hexdigest(), blob)
elif kind == 'names':
    put('with\nnewline')
    put('-rf')
    put('--help')
    put('esc\x1b[31m')
    put(b'\xff\xfe'.decode('utf-8', 'surrogateescape'))
else:
    sys.exit('no such kind: ' + kind)
tar.close()
